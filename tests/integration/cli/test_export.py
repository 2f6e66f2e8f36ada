"""`thothy artifacts export` against a real Postgres: every format, and what it says of an artifact."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import yaml
from sqlalchemy import Engine

from tests.support.command_line import SOURCE, Run, add_artifact, add_attempt, enqueue, one_line, set_job
from tests.support.command_terminal import lines_on_terminal
from tests.support.home import THOTHY
from thothy_ai.queue.seeds import attempt_seed
from thothy_ai.settings import Settings

HOOK = {"hook": "Crocks – à la mode,\nagain"}


@pytest.fixture
def hook(run: Run, engine: Engine) -> UUID:
    """A job with everything that an export tells of, and its artifact."""
    options = ("--source", SOURCE, "--channel", "video", "--audience", "founders", "--key", "mon/1")
    job_id = UUID(run("enqueue", "hook", *options).stdout.strip())
    set_job(engine, job_id, parent_id=uuid4())
    add_attempt(engine, job_id, 2)
    add_artifact(engine, job_id, attempt=2, kind="hook", body=HOOK)
    return job_id


def check(told: dict[str, Any], job_id: UUID) -> None:
    """An exported artifact identifies itself."""
    assert told["job_id"] == str(job_id)
    assert (told["kind"], told["locale"], told["idempotency_key"]) == ("hook", "en", "mon/1")
    assert (told["channel"], told["audience"]) == ("video", "founders")
    assert (int(told["attempt"]), int(told["seed"])) == (2, attempt_seed(job_id, 2))
    assert len(told["source_key"]) == 32
    assert UUID(told["parent_id"])
    assert str(told["created_at"]).startswith("20")


def test_json_files(run: Run, hook: UUID, tmp_path: Path) -> None:
    done = run("artifacts", "export", tmp_path / "out")
    assert done.stderr == f"1 accepted artifact written to {tmp_path / 'out'}\n"
    (file,) = (tmp_path / "out").iterdir()
    assert file.name == f"hook.en.crocks-a-la-mode-again.{hook}.json"
    told = json.loads(file.read_text())
    check(told, hook)
    assert told["body"] == HOOK


def test_markdown_files(run: Run, hook: UUID, tmp_path: Path) -> None:
    run("artifacts", "export", tmp_path / "out", "--format", "md")
    (file,) = (tmp_path / "out").iterdir()
    nothing, matter, body = file.read_text().split("---\n", 2)
    assert (nothing, body) == ("", "\nCrocks – à la mode,\nagain\n")
    told = yaml.safe_load(matter)
    assert (told["title"], told["lang"]) == ("Crocks – à la mode, again", "en")
    check(told["provenance"] | {"locale": told["lang"], "created_at": told["date"]}, hook)


def test_html_pages(run: Run, hook: UUID, tmp_path: Path) -> None:
    run("artifacts", "export", tmp_path / "out", "--format", "html")
    (file,) = (tmp_path / "out").iterdir()
    article = f'<article data-kind="hook" data-job-id="{hook}">\n<p>Crocks – à la mode,\nagain</p>\n</article>'
    assert file.read_text().endswith(f"<body>\n{article}\n</body>\n</html>\n")


@pytest.mark.parametrize("form", ["md", "json", "html"])
def test_a_file_per_source(run: Run, engine: Engine, hook: UUID, tmp_path: Path, form: str) -> None:
    sibling = UUID(run("enqueue", "trend_summary", "--source", SOURCE).stdout.strip())
    add_artifact(engine, sibling, kind="trend_summary", body={"title": "Crocks return"})
    other = UUID(run("enqueue", "hook", "--source", "Another text about tiny forests.").stdout.strip())
    add_artifact(engine, other, kind="hook", body={"hook": "Plant one."})
    done = run("artifacts", "export", tmp_path / "out", "--format", form, "--per", "source")
    assert done.stderr.startswith("3 accepted artifacts written")
    by_size = sorted((tmp_path / "out").iterdir(), key=lambda file: file.stat().st_size)
    assert ["Plant one." in by_size[0].read_text(), "Crocks return" in by_size[1].read_text()] == [True, True]
    assert len(by_size) == 2
    assert all(str(job_id) in by_size[1].read_text() for job_id in (hook, sibling))


@pytest.mark.parametrize("target", ["all.csv", "deeper/all.csv", "all"])
def test_csv(run: Run, hook: UUID, tmp_path: Path, target: str) -> None:
    run("artifacts", "export", tmp_path / target, *([] if target.endswith(".csv") else ["--format", "csv"]))
    with (tmp_path / target).open(encoding="utf-8-sig", newline="") as file:
        (told,) = csv.DictReader(file)
    check(told, hook)
    assert told["text"] == "Crocks – à la mode,\nagain"


def test_jsonl(run: Run, hook: UUID, tmp_path: Path) -> None:
    run("artifacts", "export", tmp_path / "all.jsonl")
    (line,) = (tmp_path / "all.jsonl").read_text().splitlines()
    check(json.loads(line), hook)


def test_standard_output(run: Run, hook: UUID) -> None:
    check(json.loads(run("artifacts", "export", "-").stdout), hook)
    assert run("artifacts", "export", "-", "--tenant", "acme").stdout == ""
    (told,) = csv.DictReader(io.StringIO(run("artifacts", "export", "-", "--format", "csv").stdout))
    check(told, hook)
    assert "Crocks" in run("artifacts", "export", "-", "--format", "md").stdout


def test_filters_and_verdicts(run: Run, engine: Engine, hook: UUID, tmp_path: Path) -> None:
    other = enqueue(run)
    for attempt in (1, 2):
        add_artifact(engine, other, locale="../../etc/passwd", reason="wrong_language", attempt=attempt)
    done = run("artifacts", "export", tmp_path / "bad", "--verdict", "rejected")
    assert done.stderr.startswith("2 rejected artifacts written")
    bad = sorted(file.name for file in (tmp_path / "bad").iterdir())
    assert [name.split(".")[-2] for name in bad] == ["attempt1", "attempt2"]
    assert all("etc_passwd" in name for name in bad)
    done = run("artifacts", "export", tmp_path / "none.csv", "--key", "tue/*")
    assert done.stderr == "No accepted artifacts match --key tue/*.\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["one.json"], "goes to a folder"),
        (["one.md"], "for one file, name it .jsonl or .csv"),
        (["-", "--format", "json"], "pass --format jsonl, csv, md or html"),
        (["out", "--format", "xml"], "'xml' is not one of"),
        (["page.html"], "for one file, name it .jsonl or .csv"),
        (["all.csv", "--per", "source"], "--per source goes to a folder"),
        (["-", "--format", "md", "--per", "source"], "--per source goes to a folder"),
    ],
)
def test_a_target_that_does_not_suit_the_format(run: Run, arguments: list[str], words: str) -> None:
    assert words in one_line(run("artifacts", "export", *arguments, exit_code=2))


@pytest.mark.parametrize("target", ["file/deeper", "file/deeper.csv"])
def test_an_unwritable_path(run: Run, hook: UUID, tmp_path: Path, target: str) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot write" in one_line(run("artifacts", "export", tmp_path / target, exit_code=1))


def test_a_reader_that_has_read_enough_is_no_error(run: Run, engine: Engine, settings: Settings) -> None:
    """More than a pipe holds, so that writing fails while artifacts are left."""
    for _ in range(3):
        add_artifact(engine, enqueue(run), text="x" * 100_000)
    for arguments in (["artifacts", "export", "-"], ["jobs", "list", "--json"]):
        command = subprocess.Popen([*THOTHY, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.close()
        assert command.stderr.read() == b""
        command.stderr.close()
        assert command.wait() == 1


def test_markdown_on_a_terminal(run: Run, hook: UUID) -> None:
    shown = "\n".join(lines_on_terminal([*THOTHY, "artifacts", "export", "-", "--format", "md"], os.environ))
    assert "Crocks – à la mode" in shown
