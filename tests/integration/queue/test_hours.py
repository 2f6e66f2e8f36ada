"""Hours of usage that are closed once and restated openly, and sessions that are settled."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.support.book_rows import HOUR, attempt, job, session, settle
from tests.support.queue_bench import Queue
from thothy_ai.admin.dead_letters import Selection, purge
from thothy_ai.queue.books import close_hours, close_some


def usage(queue: Queue) -> dict[tuple[str, str], tuple[float, ...]]:
    """Attempts, accepted, busy and useful seconds of each hour's rows, by kind and model."""
    rows = queue.rows("SELECT * FROM usage_by_hour ORDER BY hour, kind, model_name")
    return {
        (row.kind, row.model_name): (row.attempts, row.accepted, row.busy_seconds, row.useful_seconds) for row in rows
    }


def close_one(queue: Queue) -> None:
    with queue.engine.begin() as connection:
        assert close_some(connection, most=1)


class TestHours:
    def test_an_hour_is_closed_with_what_ended_in_it(self, queue: Queue, hour: datetime) -> None:
        box = session(queue, hour - HOUR, hour + HOUR / 2)
        one = job(queue, "hook", "succeeded", hour, hour + HOUR / 4)
        attempt(queue, one, "rejected", hour, 3.0, box, 1)
        attempt(queue, one, "succeeded", hour + HOUR / 4, 5.0, box, 2)
        lost = job(queue, "hook", "dead", hour, hour + HOUR / 3)
        attempt(queue, lost, "lost", hour + HOUR / 3, 2.0, box)
        attempt(queue, lost, "failed", hour + HOUR / 3, 0.0, None, 2)
        job(queue, "faq", "expired", hour, hour + HOUR - timedelta(microseconds=1))
        after = job(queue, "faq", "succeeded", hour, hour + HOUR)
        attempt(queue, after, "succeeded", hour + HOUR, 7.0, box)
        close_one(queue)
        assert usage(queue) == {
            ("", "small"): (0, 0, 0, 0),
            ("hook", "small"): (3, 1, 2 * 10.0, 2 * 5.0),
            ("hook", ""): (1, 0, 0, 0),
            ("faq", ""): (0, 0, 0, 0),
        }
        [residency] = queue.rows("SELECT hour, resident_seconds FROM usage_by_hour WHERE kind = ''")
        assert (residency.hour, residency.resident_seconds) == (hour, pytest.approx(2 * 1800))
        [ended] = queue.rows("SELECT expired, dead FROM usage_by_hour WHERE kind = 'faq'")
        assert tuple(ended) == (1, 0)
        [billed] = queue.rows("SELECT billed_seconds FROM engine_session")
        assert billed.billed_seconds == 10.0

    def test_closing_again_changes_nothing_and_the_open_hours_stay_open(self, queue: Queue, hour: datetime) -> None:
        box = session(queue, hour, None)
        for hours in range(4):
            one = job(queue, "hook", "succeeded", hour, hour + hours * HOUR)
            attempt(queue, one, "succeeded", hour + hours * HOUR, 1.0, box)
        assert close_hours(queue.engine)
        assert not close_hours(queue.engine)
        assert [row.closed_until for row in queue.rows("SELECT * FROM usage_progress")] == [hour + 2 * HOUR]
        rows = queue.rows("SELECT hour, attempts, busy_seconds FROM usage_by_hour WHERE kind <> '' ORDER BY hour")
        assert [tuple(row) for row in rows] == [(hour, 1, 2.0), (hour + HOUR, 1, 2.0)]
        assert [row.billed_seconds for row in queue.rows("SELECT billed_seconds FROM engine_session")] == [2.0]

    def test_a_purge_changes_no_hour_closed_or_open(self, queue: Queue, hour: datetime) -> None:
        box = session(queue, hour, None)
        for end in (hour, hour + HOUR):
            dead = job(queue, "hook", "dead", hour, end)
            attempt(queue, dead, "rejected", end, 2.0, box)
        close_one(queue)
        assert purge(queue.engine, Selection()) == 2
        again = job(queue, "hook", "dead", hour, hour + HOUR)
        attempt(queue, again, "rejected", hour + HOUR, 2.0, box)
        assert purge(queue.engine, Selection()) == 1
        assert queue.rows("SELECT 1 FROM attempt") == []
        assert close_hours(queue.engine)
        rows = queue.rows("SELECT * FROM usage_by_hour WHERE kind <> '' ORDER BY hour, model_name")
        figures = [(row.hour, row.model_name, row.attempts, row.dead, row.busy_seconds, row.revised_at) for row in rows]
        one, two = (hour, hour + HOUR)
        assert figures == [
            (one, "", 0, 1, 0, None), (one, "small", 1, 0, 4, None),
            (two, "", 0, 2, 0, None), (two, "small", 2, 0, 8, None),
        ]  # fmt: skip
        assert [row.closed_seconds for row in rows] == [0, 4, 0, 8]
        assert [row.billed_seconds for row in queue.rows("SELECT billed_seconds FROM engine_session")] == [6.0]

    def test_usage_that_is_reported_late_restates_its_hour(self, queue: Queue, hour: datetime) -> None:
        box = session(queue, hour, None)
        lost = job(queue, "hook", "dead", hour, hour)
        attempt(queue, lost, "lost", hour, 0.0, box)
        close_hours(queue.engine)
        given = {"job_ids": [lost], "attempts": [1], "session_ids": [box], "seconds": [1.5], "recorded": [0.0]}
        for _ in range(2):
            queue.ask("worker/record_usage", **given)
        [row] = queue.rows("SELECT * FROM usage_by_hour WHERE model_name <> '' AND kind <> ''")
        assert (row.busy_seconds, row.closed_seconds, row.revised_at is not None) == (3.0, 0.0, True)
        assert [row.billed_seconds for row in queue.rows("SELECT billed_seconds FROM engine_session")] == [1.5]

    def test_a_session_that_is_settled_late_restates_its_hours(self, queue: Queue, hour: datetime) -> None:
        box = session(queue, hour, hour + 2 * HOUR)
        done = job(queue, "hook", "succeeded", hour, hour)
        attempt(queue, done, "succeeded", hour, 4.0, box)
        for end in (hour, hour + 2 * HOUR):  # the second one's hour is open
            lost = job(queue, "hook", "dead", hour, end)
            attempt(queue, lost, "lost", end, 0.0, box, start=end - timedelta(seconds=3))
        queue.rows("UPDATE engine_session SET busy_seconds = 10")
        close_hours(queue.engine)
        settle(queue)
        [row] = queue.rows("SELECT * FROM usage_by_hour WHERE model_name <> '' AND kind <> ''")
        assert (row.busy_seconds, row.closed_seconds, row.useful_seconds) == (14, 8, 8)
        assert row.revised_at is not None
        close_hours(queue.engine, open_hours=0)
        rows = queue.rows("SELECT busy_seconds, revised_at FROM usage_by_hour WHERE kind <> '' AND hour > :at", at=hour)
        assert sorted(row.busy_seconds for row in rows) == [0, 6]
        assert {row.revised_at for row in rows} == {None}
        assert [row.billed_seconds for row in queue.rows("SELECT billed_seconds FROM engine_session")] == [10.0]

    def test_a_session_that_is_not_locked_is_not_settled(self, queue: Queue, hour: datetime) -> None:
        locked, ended_since = (session(queue, hour, hour + HOUR) for _ in range(2))
        queue.ask("queue/settle_sessions", ids=[locked])
        assert [row.id for row in queue.rows("SELECT id FROM engine_session WHERE settled_at IS NULL")] == [ended_since]

    def test_residency_that_was_not_known_is_restated(self, queue: Queue, hour: datetime) -> None:
        session(queue, hour, hour + HOUR / 2)
        close_one(queue)
        queue.rows("UPDATE engine_session SET ended_at = NULL, heartbeat_at = now() + interval '1 hour'")
        close_hours(queue.engine)
        rows = queue.rows("SELECT * FROM usage_by_hour ORDER BY hour")
        assert [(row.resident_seconds, row.closed_seconds, row.revised_at is None) for row in rows] == [
            (7200, 3600, False), (7200, 7200, True),
        ]  # fmt: skip
