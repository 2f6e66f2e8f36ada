"""`thothy artifacts` against a real Postgres."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import Engine, update

from tests.support.command_line import (
    Run,
    add_artifact,
    enqueue,
    one_line,
)
from thothy_ai.cli.export import file_name
from thothy_ai.db.models import Artifact


def test_list_and_show(run: Run, engine: Engine) -> None:
    job_id = enqueue(run)
    missing = one_line(run("artifacts", "show", job_id, exit_code=1))
    assert f"job {job_id} has no artifact: its state is queued" in missing
    add_artifact(engine, job_id)
    add_artifact(engine, job_id, locale="de", reason="wrong_language")
    assert len(json.loads(run("artifacts", "list", "--json").stdout)) == 2
    rejected = json.loads(run("artifacts", "list", "--verdict", "rejected", "--json").stdout)
    assert [artifact["reason"] for artifact in rejected] == ["wrong_language"]
    assert "à la mode" in run("artifacts", "show", job_id).stdout


def test_model_output_cannot_control_the_terminal(run: Run, engine: Engine) -> None:
    job_id = enqueue(run)
    add_artifact(engine, job_id, reason="repetition")
    with engine.begin() as connection:
        connection.execute(update(Artifact).values(body=None, text="a\x1b]0;owned\x07\n\tb\x9b2J"))
    assert "a\ufffd]0;owned\ufffd\n\tb\ufffd2J" in run("artifacts", "show", job_id).stdout
    for command in (("artifacts", "list"), ("jobs", "show", job_id)):
        assert not set("\x1b\x07\x9b") & set(run(*command).stdout)


def test_export_to_a_folder_and_to_jsonl(run: Run, engine: Engine, tmp_path: Path) -> None:
    jobs = [enqueue(run) for _ in range(3)]
    for job_id in jobs:
        add_artifact(engine, job_id)
    add_artifact(engine, jobs[0], locale="../../etc/passwd", reason="wrong_language")
    run("artifacts", "export", tmp_path / "out")
    files = sorted((tmp_path / "out").iterdir())
    assert {json.loads(file.read_text())["job_id"] for file in files} == {str(job_id) for job_id in jobs}
    run("artifacts", "export", tmp_path / "all.jsonl")
    assert len((tmp_path / "all.jsonl").read_text().splitlines()) == 3
    run("artifacts", "export", tmp_path / "bad", "--verdict", "rejected")
    (bad,) = (tmp_path / "bad").iterdir()
    assert bad.name.startswith("trend_summary._.._etc_passwd.") or "etc_passwd" in bad.name
    assert not any(part == ".." for part in bad.relative_to(tmp_path).parts)


def test_export_to_an_unwritable_path(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot write" in one_line(run("artifacts", "export", tmp_path / "file" / "deeper", exit_code=1))


@pytest.mark.parametrize("locale", ["..", "/", "a/../../b", "x" * 400, "", "de\x00", "日本"])
def test_file_names_stay_in_their_folder(locale: str) -> None:
    name = file_name({"kind": "../k", "locale": locale, "job_id": uuid4(), "attempt": 2})
    assert "/" not in name
    assert not name.startswith(".")
    assert name.isascii()
    assert len(name) < 255
