"""`thothy report` and `thothy drain` against a real Postgres."""

from __future__ import annotations

import json

from sqlalchemy import Engine

from tests.support.command_line import (
    Run,
    end,
    enqueue,
)


def test_an_empty_queue_is_drained_immediately(run: Run) -> None:
    assert "jobs per compute-hour" in run("drain").stdout


def test_drain_times_out_and_reports_open_jobs(run: Run) -> None:
    enqueue(run)
    done = run("drain", "--timeout", "1s", "--json", exit_code=1)
    assert json.loads(done.stdout)["total"]["jobs"]["queued"] == 1
    assert "1 jobs are still open after 1.0 s" in done.stderr


def test_report(run: Run, engine: Engine) -> None:
    end(engine, enqueue(run), "succeeded")
    report = json.loads(run("report", "--since", "2h", "--json").stdout)
    assert report["kinds"]["trend_summary"]["jobs"]["succeeded"] == 1
    assert "trend_summary" in run("report").stdout
    assert "later than --since" in run("report", "--since", "1h", "--until", "2h", exit_code=2).output
