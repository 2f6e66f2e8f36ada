"""The books: hours that are closed once and restated openly, sessions that are settled, drains that are recorded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.support.engine_rows import fall_silent, register
from tests.support.hours import wait_out_the_hour
from tests.support.queue_bench import Queue
from thothy_ai.admin.dead_letters import Selection, purge
from thothy_ai.admin.model_aliases import set_alias
from thothy_ai.queue.books import close_hours, close_some, settle_sessions
from thothy_ai.queue.drain_records import DrainRecords

RETRY = {"retry_base_seconds": 0, "retry_cap_seconds": 0}
HOUR = timedelta(hours=1)
GAP = 30.0


@pytest.fixture
def hour(queue: Queue) -> datetime:
    """The hour that is closed next: from three hours ago on."""
    wait_out_the_hour()
    [row] = queue.rows("SELECT date_trunc('hour', now()) - interval '3 hours' AS hour")
    queue.rows("UPDATE usage_progress SET closed_until = :hour", hour=row.hour)
    return row.hour.astimezone(UTC)  # type: ignore[no-any-return]


def session(queue: Queue, start: datetime, end: datetime | None, *, gpus: int = 2, model: str = "small") -> UUID:
    made = uuid4()
    queue.rows(
        "INSERT INTO engine_session (id, model, model_name, device, dtype, gpus, num_blocks, block_size, started_at,"
        " heartbeat_at, ended_at) VALUES (:id, '/models/small', :model, 'cuda', 'bf16', :gpus, 1, 16, :start,"
        " coalesce(:end, now()), :end)",
        id=made, model=model, gpus=gpus, start=start, end=end,
    )  # fmt: skip
    return made


def job(queue: Queue, kind: str, state: str, due: datetime, end: datetime | None, **values: object) -> UUID:
    made = uuid4()
    row = {"tenant": "t", "source_key": "s", "request_digest": "d", "max_attempts": 3, "attempt": 1, "not_before": due}
    reason = "x" if state == "dead" else None
    row |= {
        "id": made,
        "kind": kind,
        "state": state,
        "enqueued_at": due,
        "finished_at": end,
        "reason": reason,
        **values,
    }
    queue.rows(f"INSERT INTO job ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})", **row)
    return made


def attempt(
    queue: Queue, job_id: UUID, outcome: str, end: datetime, seconds: float, box: UUID | None, number: int = 1,
    *, start: datetime | None = None,
) -> None:  # fmt: skip
    queue.rows(
        "INSERT INTO attempt (job_id, attempt, tenant, kind, worker, engine_session_id, started_at, finished_at,"
        " outcome, prompt_tokens, cached_tokens, output_tokens, compute_seconds)"
        " SELECT :id, :number, tenant, kind, 'w', :box, coalesce(:start, finished_at), :end, :outcome, 100, 60, 7,"
        " :seconds FROM job WHERE id = :id",
        id=job_id, number=number, box=box, end=end, outcome=outcome, seconds=seconds, start=start,
    )  # fmt: skip


def usage(queue: Queue) -> dict[tuple[str, str], tuple[float, ...]]:
    """Attempts, accepted, busy and useful seconds of each hour's rows, by kind and model."""
    rows = queue.rows("SELECT * FROM usage_by_hour ORDER BY hour, kind, model_name")
    return {
        (row.kind, row.model_name): (row.attempts, row.accepted, row.busy_seconds, row.useful_seconds) for row in rows
    }


def close_one(queue: Queue) -> None:
    with queue.engine.begin() as connection:
        assert close_some(connection, most=1)


def settle(queue: Queue) -> None:
    with queue.engine.begin() as connection:
        settle_sessions(connection)


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
            attempt(queue, lost, "lost", end, 0.0, box)
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
        queue.rows("UPDATE engine_session SET ended_at = NULL, heartbeat_at = now()")  # it was there all along
        close_hours(queue.engine)
        rows = queue.rows("SELECT * FROM usage_by_hour ORDER BY hour")
        assert [(row.resident_seconds, row.closed_seconds, row.revised_at is None) for row in rows] == [
            (7200, 3600, False), (7200, 7200, True),
        ]  # fmt: skip


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
