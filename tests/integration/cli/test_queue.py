"""`thothy queue` against a real Postgres."""

from __future__ import annotations

import json

from tests.support.command_line import (
    Run,
    enqueue,
)


def test_pause_status_resume(run: Run) -> None:
    assert "The queue is empty" in run("queue", "status").stdout
    enqueue(run, "--deadline", "30m")
    enqueue(run, "--not-before", "2h")
    run("queue", "pause", "--note", "GPU maintenance")
    status = json.loads(run("queue", "status", "--json").stdout)
    assert (status["paused"], status["note"], status["open"]) == (True, "GPU maintenance", 2)
    assert (status["states"]["queued"]["due_1h"], status["states"]["queued"]["delayed"]) == (1, 1)
    assert "GPU maintenance" in run("queue", "status").stdout
    run("queue", "resume")
    assert json.loads(run("queue", "status", "--json").stdout)["paused"] is False
