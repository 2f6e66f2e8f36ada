"""`thothy artifacts list` and `show` against a real Postgres."""

from __future__ import annotations

import json

from sqlalchemy import Engine, update

from tests.support.command_line import Run, add_artifact, end, enqueue, ids_of, one_line, set_job
from thothy_ai.db.models import ArtifactRow


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


def test_list_by_what_identifies_their_job(run: Run, engine: Engine) -> None:
    first, second = enqueue(run, "--key", "mon/1"), enqueue(run, "--key", "tue/1")
    for job_id in (first, second):
        add_artifact(engine, job_id)
    set_job(engine, second, parent_id=first)
    end(engine, second, "succeeded")
    with engine.begin() as connection:
        connection.execute(update(ArtifactRow).where(ArtifactRow.job_id == second).values(tenant="acme"))
    for filters, found in {
        ("--key", "mon/*"): [first],
        ("--parent", str(first)[-8:]): [second],
        ("--batch", str(first)): [first],
        ("--state", "succeeded"): [second],
        ("--kind", "trend_summary", "--since", "1h"): [second, first],
        ("--until", "1h"): [],
        ("--source", "abcdabcd"): [],
        ("--tenant", "acme"): [second],
        ("--tenant", "nobody"): [],
    }.items():
        assert ids_of(run, "artifacts", "list", *filters) == list(map(str, found)), filters


def test_model_output_cannot_control_the_terminal(run: Run, engine: Engine) -> None:
    job_id = enqueue(run)
    add_artifact(engine, job_id, reason="repetition")
    with engine.begin() as connection:
        connection.execute(update(ArtifactRow).values(body=None, text="a\x1b]0;owned\x07\n\tb\x9b2J"))
    assert "a\ufffd]0;owned\ufffd\n\tb\ufffd2J" in run("artifacts", "show", job_id).stdout
    for command in (("artifacts", "list"), ("jobs", "show", job_id)):
        assert not set("\x1b\x07\x9b") & set(run(*command).stdout)
