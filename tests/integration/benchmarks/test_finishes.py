"""Benchmarks that stand in for a worker write what a worker writes."""

from __future__ import annotations

import pytest

from benchmarks import backlog, waiting
from benchmarks.backlog import fill, servers

pytestmark = pytest.mark.usefixtures("clean_environment")
JOBS = 50


def test_a_stand_in_finishes_jobs_in_the_planned_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MEASURED_JOBS", JOBS)
    with servers() as (settings, engine):
        fill(engine, 2 * JOBS)
        _, measured, _ = backlog._dispatch_row(settings, engine, "a few")
    assert "jobs/s, in planned order" in measured


def test_a_finish_is_timed_with_and_without_notifications(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "BATCH", JOBS)
    monkeypatch.setattr(waiting, "ROUNDS", 1)
    with servers() as (settings, _):
        found = waiting.finishes(settings)
    assert len(found) == 3
    assert all(seconds > 0 for seconds in found.values())
