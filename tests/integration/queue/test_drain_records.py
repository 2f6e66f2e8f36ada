"""Drains that are recorded: where they begin and end, and their figures."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.support.book_rows import HOUR, attempt, job, session, settle
from tests.support.engine_rows import fall_silent, register
from tests.support.queue_bench import Queue
from thothy_ai.admin.model_aliases import set_alias
from thothy_ai.admin.report.recorded_drains import list_drains
from thothy_ai.queue.drain_records import DrainRecords

GAP = 30.0


def record(queue: Queue) -> list[Any]:
    with queue.engine.begin() as connection:
        return DrainRecords().record(connection, GAP)


def drains(queue: Queue) -> list[Any]:
    return queue.rows("SELECT * FROM drain ORDER BY started_at")


class TestDrains:
    START = datetime.now(UTC).replace(microsecond=0) - 2 * HOUR
    SECOND = timedelta(seconds=1)

    def at(self, seconds: float) -> datetime:
        return self.START + seconds * self.SECOND

    def ran(
        self, queue: Queue, due: float, start: float, end: float, state: str = "succeeded", **values: object
    ) -> UUID:
        """A job whose only attempt took a tenth of its time on an engine that may be there."""
        made = job(queue, "hook", state, self.at(due), self.at(end), **values)
        box = queue.rows("SELECT id FROM engine_session")
        outcome = {"succeeded": "succeeded", "dead": "rejected"}[state]
        seconds = (end - start) / 10
        attempt(queue, made, outcome, self.at(end), seconds, box[0].id if box else None, start=self.at(start))
        return made

    def test_a_drain_s_figures(self, queue: Queue) -> None:
        session(queue, self.at(-100), None)
        for number in range(10):
            self.ran(queue, 0, 10 * number, 10 * number + 10, "dead" if number == 9 else "succeeded")
        job(queue, "hook", "expired", self.at(5), self.at(50), attempt=0)
        assert len(record(queue)) == 1
        assert record(queue) == []
        [drain] = drains(queue)
        assert (drain.started_at, drain.ended_at, drain.emptied) == (self.at(0), self.at(100), True)
        counts = (drain.succeeded, drain.dead, drain.cancelled, drain.expired, drain.attempts, drain.with_output)
        assert counts == (9, 1, 0, 1, 10, 10)
        assert drain.peak_depth == 11
        waits, runs = (drain.wait_p50, drain.wait_p95, drain.wait_p99), (drain.run_p50, drain.run_p95, drain.run_p99)
        assert waits == pytest.approx((45, 85.5, 89.1))
        assert runs == (10, 10, 10)
        seconds = (drain.resident_seconds, drain.busy_seconds, drain.useful_seconds)
        assert seconds == pytest.approx((200, 20, 18))  # on two GPUs

    def test_a_draft_to_edit_is_no_success_of_a_drain(self, queue: Queue) -> None:
        session(queue, self.at(-100), None)
        for number, (verdict, findings) in enumerate([("accepted", "[]"), ("accepted", "[{}]"), ("rejected", "[{}]")]):
            end = 10 * number + 10
            made = self.ran(queue, 0, 10 * number, end, "dead" if verdict == "rejected" else "succeeded")
            queue.rows(
                "INSERT INTO artifact (job_id, kind, locale, attempt, tenant, verdict, reason, body, text, findings,"
                " created_at) VALUES (:id, 'hook', 'en', 1, 't', :verdict,"
                " CASE :verdict WHEN 'rejected' THEN 'empty' END, '{}', '', CAST(:findings AS jsonb), :at)",
                id=made, verdict=verdict, findings=findings, at=self.at(end),
            )  # fmt: skip
        queue.rows("UPDATE job SET state = 'succeeded', review = 'needs_edit' WHERE state = 'dead'")
        record(queue)
        [drain] = list_drains(queue.engine, self.at(-1), self.at(1000))
        assert (drain.succeeded, drain.with_output, drain.with_artifact, drain.clean, drain.to_edit) == (3, 3, 2, 1, 1)
        assert (drain.form_yield, drain.clean_yield) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
        assert (drain.useful_seconds, drain.draft_seconds, drain.wasted_seconds) == pytest.approx((4, 2, 0))
        assert drain.jobs_per_compute_hour == pytest.approx(2 * 3600 / drain.resident_seconds)

    def test_short_gaps_belong_to_a_drain_and_longer_ones_end_it(self, queue: Queue) -> None:
        for start in (0, 11 + GAP, 50 + GAP):  # gaps of a second more than that, and a second less
            self.ran(queue, start, start, start + 10)
        record(queue)
        spans = [(drain.started_at, drain.ended_at, drain.peak_depth) for drain in drains(queue)]
        assert spans == [
            (self.at(0), self.at(10), 1),
            (self.at(11 + GAP), self.at(60 + GAP), 1),
        ]

    def test_none_is_recorded_while_a_job_is_open_or_may_follow(self, queue: Queue) -> None:
        self.ran(queue, 0, 0, 10)
        [waiting] = queue.enqueue("later", not_before=datetime.now(UTC) + HOUR)
        [open_] = queue.enqueue("now")
        for change in (
            "state = 'queued'",
            "not_before = now() + interval '1 minute', attempt = 1",  # it waits for its next attempt
            "state = 'dispatched', dispatched_at = now()",
            "state = 'running', worker = 'w', started_at = now(), lease_until = now()",
        ):
            queue.rows(f"UPDATE job SET {change} WHERE id = :id", id=open_)
            assert record(queue) == []
        queue.rows(
            "UPDATE job SET state = 'succeeded', worker = NULL, lease_until = NULL, finished_at = now() WHERE id = :id",
            id=open_,
        )
        assert record(queue) == []
        queue.rows(
            "UPDATE job SET enqueued_at = now() - interval '1 minute', not_before = now() - interval '1 minute',"
            " finished_at = now() - interval '31 seconds' WHERE id = :id",
            id=open_,
        )
        assert len(record(queue)) == 2
        assert queue.job(waiting).state == "queued"

    def test_a_job_that_no_engine_can_run_keeps_no_drain_open(self, queue: Queue) -> None:
        self.ran(queue, 0, 0, 10)
        [stranded] = queue.enqueue("ok", model="huge")
        box = register(queue, "a", "huge", silent=60)
        assert record(queue) == []  # it may come back
        fall_silent(queue, box, 16 * 60)
        queue.rows("UPDATE engine_session SET settled_at = now()")
        assert len(record(queue)) == 1
        self.ran(queue, 100, 100, 110)
        register(queue, "a", "huge")
        assert record(queue) == []
        queue.rows("DELETE FROM engine_session")
        register(queue, "b", "small")
        set_alias(queue.engine, "huge", "small")
        assert record(queue) == []  # the alias stands for a model that is served
        assert queue.job(stranded).state == "queued"

    def test_a_drain_of_jobs_that_waited_for_an_engine_begins_when_they_are_first_tried(self, queue: Queue) -> None:
        records = DrainRecords()
        self.ran(queue, 0, 0, 10)
        record(queue)
        stranded = job(queue, "hook", "queued", self.at(5), None, model="huge", attempt=0)
        gone = job(queue, "hook", "cancelled", self.at(5), self.at(500), model="huge", attempt=0)
        with queue.engine.begin() as connection:
            assert records.record(connection, GAP) == []
        ended = "UPDATE job SET state = 'succeeded', attempt = 1, finished_at = :at WHERE id = :id"
        queue.rows(ended, id=stranded, at=self.at(1010))
        attempt(queue, stranded, "succeeded", self.at(1010), 1.0, None, start=self.at(1000))
        assert len(record(queue)) == 1
        [_, drain] = drains(queue)
        assert (drain.started_at, drain.ended_at, drain.succeeded) == (self.at(1000), self.at(1010), 1)
        assert drain.wait_p50 == pytest.approx(995)
        assert drain.cancelled == 0
        assert gone != stranded

    def test_no_drain_begins_before_the_queue_was_last_found_empty(self, queue: Queue) -> None:
        records = DrainRecords()
        late = job(queue, "hook", "queued", self.at(50), None, model="huge", attempt=0)
        with queue.engine.begin() as connection:
            assert records.record(connection, GAP) == []
        now = datetime.now(UTC)
        queue.rows(
            "UPDATE job SET state = 'succeeded', attempt = 1, finished_at = :at WHERE id = :id",
            id=late, at=now + 6 * self.SECOND,
        )  # fmt: skip
        attempt(queue, late, "succeeded", now + 6 * self.SECOND, 1.0, None, start=now + 5 * self.SECOND)
        with queue.engine.begin() as connection:
            assert len(records.record(connection, -10.0)) == 1
        assert [drain.started_at for drain in drains(queue)] == [now + 5 * self.SECOND]

    @pytest.mark.parametrize("model", [None, "small"])
    def test_a_job_whose_transaction_was_open_while_the_queue_looked_empty_begins_then(
        self, queue: Queue, model: str | None
    ) -> None:
        records = DrainRecords()
        served = session(queue, datetime.now(UTC) - HOUR, None)
        with queue.engine.begin() as connection:
            assert records.record(connection, GAP) == []
        [looked], instant = queue.rows("SELECT now() AS at"), timedelta(microseconds=2)
        for number in range(10):
            end, values = looked.at + (number + 1) * instant, {"model": model, "enqueued_at": looked.at - HOUR}
            if number == 9:
                job(queue, "hook", "cancelled", looked.at - HOUR, end, attempt=0, **values)
                continue
            done = job(queue, "hook", "succeeded", looked.at - HOUR, end, **values)
            attempt(queue, done, "succeeded", end, 0.1, served, start=end - instant / 2)
        with queue.engine.begin() as connection:
            assert len(records.record(connection, 0.0)) == 1
        [drain] = drains(queue)
        assert (drain.succeeded, drain.cancelled, drain.peak_depth) == (9, 1, 10)
        assert drain.started_at < looked.at

    def test_none_is_recorded_while_the_usage_of_an_engine_is_unknown(self, queue: Queue) -> None:
        self.ran(queue, 0, 0, 10)
        session(queue, self.at(0), self.at(10))
        assert record(queue) == []
        settle(queue)
        assert len(record(queue)) == 1

    def test_what_was_never_due_is_in_no_drain(self, queue: Queue) -> None:
        job(queue, "hook", "cancelled", self.at(0), self.at(5), not_before=self.at(500), attempt=0)
        assert record(queue) == []

    def test_a_job_for_later_is_due_at_its_time_and_a_retry_when_it_was_enqueued(self, queue: Queue) -> None:
        later = self.ran(queue, 100, 103, 110, enqueued_at=self.at(0), scheduled_for=self.at(100))
        retried = job(queue, "hook", "succeeded", self.at(99), self.at(125), not_before=self.at(120), attempt=2)
        attempt(queue, retried, "rejected", self.at(105), 1.0, None, 1, start=self.at(100))
        attempt(queue, retried, "succeeded", self.at(125), 1.0, None, 2, start=self.at(121))
        record(queue)
        [drain] = drains(queue)
        assert (drain.started_at, drain.ended_at, drain.succeeded) == (self.at(99), self.at(125), 2)
        assert drain.wait_p50 == pytest.approx((1 + 3) / 2)
        assert later != retried

    def test_a_redriven_job_is_due_when_it_was_redriven(self, queue: Queue) -> None:
        self.ran(queue, 0, 0, 10)
        record(queue)
        redriven = job(queue, "hook", "succeeded", self.at(0), self.at(1010), not_before=self.at(1000), attempt=2)
        queue.rows("UPDATE job SET budget_after = 1 WHERE id = :id", id=redriven)
        attempt(queue, redriven, "rejected", self.at(5), 1.0, None, 1)
        attempt(queue, redriven, "succeeded", self.at(1010), 1.0, None, 2, start=self.at(1002))
        record(queue)
        assert [drain.started_at for drain in drains(queue)] == [self.at(0), self.at(1000)]

    def test_a_queue_that_is_never_empty_is_recorded_by_the_day(self, queue: Queue) -> None:
        queue.enqueue("now")
        old = datetime.now(UTC) - timedelta(hours=25)
        queue.rows("INSERT INTO drain (started_at, ended_at) VALUES (:at, :at)", at=old)
        job(queue, "hook", "succeeded", old, old + timedelta(minutes=1, seconds=30))
        assert len(record(queue)) == 1
        assert [drain.emptied for drain in drains(queue)] == [True, False]
        self.ran(queue, 0, 0, 10)
        assert record(queue) == []
