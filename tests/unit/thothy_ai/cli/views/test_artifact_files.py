"""Names of exported files, and what a terminal is shown."""

from __future__ import annotations

import csv
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from thothy_ai.admin.export.formats import Format
from thothy_ai.cli.views.artifact_files import Grouping, file_name, write


def artifact(**values: Any) -> dict[str, Any]:
    plain = {"kind": "hook", "locale": "en", "job_id": uuid4(), "attempt": 2, "verdict": "accepted"}
    made = {"body": {"title": "Crocks"}, "text": "raw", "created_at": datetime.now(UTC)}
    return {**plain, **made, **values}


@pytest.mark.parametrize("locale", ["..", "/", "a/../../b", "x" * 400, "", "de\x00", "日本"])
@pytest.mark.parametrize("title", ["", "..", "/etc/passwd", "y" * 400, "日本の漬物", "a\nb", "Ça — là"])
def test_they_stay_in_their_folder(locale: str, title: str) -> None:
    name = file_name(artifact(kind="../k", locale=locale, body={"title": title}))
    assert "/" not in name
    assert not name.startswith(".")
    assert name.isascii()
    assert name.isprintable()
    assert len(name) < 255


def test_they_say_what_it_is() -> None:
    one = artifact(body={"title": "Ça — là: why makers of clay crocks in Lyon sell out every spring"})
    assert file_name(one, "md") == f"hook.en.ca-la-why-makers-of-clay-crocks-in-lyon-sell-out.{one['job_id']}.md"


def test_attempts_of_one_job_do_not_overwrite_each_other() -> None:
    one = artifact(verdict="rejected")
    assert file_name(one) != file_name(one | {"attempt": 3})


@pytest.mark.parametrize("chosen", [Format.MD, Format.CSV, Format.JSONL, Format.HTML])
def test_no_artifact_manipulates_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, chosen: Format
) -> None:
    written = artifact(body={"title": "Crocks", "text": "\x1b]0;owned\x07 and à la mode"}, created_at=datetime.now(UTC))
    assert write(iter([written]), Path("-"), chosen) == 1
    assert ("\x1b" in capsys.readouterr().out) is (chosen is not Format.JSONL), "a pipe gets what was written"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    write(iter([written]), Path("-"), chosen)
    shown = capsys.readouterr().out
    assert "]0;owned" in shown
    assert "à la mode" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown


@pytest.mark.parametrize("title", ['=HYPERLINK("https://x.example")', "+1", "-1+2", "@SUM(A1)", "＝1"])
def test_a_spreadsheet_takes_no_cell_for_a_formula(tmp_path: Path, title: str) -> None:
    texts = ("kind", "tenant", "reason", "idempotency_key", "channel", "audience", "source_key", "model")
    made = artifact(body={"title": title, "text": f"{title} more"}, **dict.fromkeys(texts, f" {title}"))
    write(iter([made | {"created_at": datetime.now(UTC)}]), tmp_path / "all.csv", Format.CSV)
    with (tmp_path / "all.csv").open(encoding="utf-8-sig", newline="") as file:
        [row] = csv.DictReader(file)
    assert {row[name] for name in texts} == {f"' {title}"}
    assert (row["title"], row["text"]) == (f"'{title}", f"'{title} more")
    assert row["attempt"] == "2"


@pytest.mark.parametrize("keys", [("x" * 70 + "1", "x" * 70 + "2"), ("a/b", "a_b"), ("日", "本")])
def test_sources_whose_keys_look_alike_have_a_file_each(tmp_path: Path, keys: tuple[str, str]) -> None:
    made = [artifact(source_key=key, created_at=datetime.now(UTC)) for key in keys]
    assert write(iter(made), tmp_path, Format.JSON, Grouping.SOURCE) == 2
    assert len(list(tmp_path.iterdir())) == 2
