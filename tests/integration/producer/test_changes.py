"""Changes of jobs that wait: their priority, deadline and earliest start."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.support.echo_kind import Echo
from tests.support.queue_bench import Queue
from thothy_ai.errors import InvalidJobError, UnknownJobError
from thothy_ai.producer import Job, Producer
from thothy_ai.testing import InMemoryQueue

NOW = datetime.now(UTC).replace(microsecond=0)
SOON, LATER, LAST = (NOW + timedelta(hours=hours) for hours in (1, 2, 3))
TIMES = "SELECT state, priority, deadline, not_before, scheduled_for, delayed FROM job"
RUNNING = "UPDATE job SET state = 'running', worker = 'w', lease_until = now(), started_at = now()"


@pytest.fixture
def producer(queue: Queue) -> Iterator[Producer]:
    with Producer(queue.settings) as producer:
        yield producer


def enqueue(producer: Producer, **options: Any) -> Job:
    return producer.enqueue(Echo(text="ok"), **options)


@pytest.mark.parametrize("state", ["queued", "dispatched"])
def test_what_is_given_changes_and_the_rest_stays(queue: Queue, producer: Producer, state: str) -> None:
    job = enqueue(producer, priority=1, deadline=LAST, not_before=SOON)
    queue.rows(f"UPDATE job SET state = '{state}', dispatched_at = now()")
    assert job.change(priority=7)
    assert queue.rows(TIMES) == [("queued", 7, LAST, SOON, SOON, True)]
    assert job.change(not_before=LATER, deadline=None)
    assert queue.rows(TIMES) == [("queued", 7, None, LATER, LATER, True)]
    assert job.change(not_before=None, deadline=LAST)
    [(_, priority, deadline, start, scheduled, delayed)] = queue.rows(TIMES)
    assert (priority, deadline, scheduled, delayed) == (7, LAST, None, False)
    assert start <= datetime.now(UTC)
    assert queue.rows("SELECT detail FROM job_event ORDER BY at") == [
        ("priority 7",),
        (f"no deadline, not before {LATER.isoformat()}",),
        (f"deadline {LAST.isoformat()}, no not before",),
    ]


def test_a_new_time_is_kept_out_of_the_queue_as_one_given_at_first(queue: Queue, producer: Producer) -> None:
    enqueue(producer, not_before=LATER)
    enqueue(producer).change(not_before=LATER)
    first, changed = queue.rows(TIMES)
    assert first == changed


def test_a_message_that_went_out_before_is_fenced_off(queue: Queue, producer: Producer) -> None:
    """The job is dispatched again when it is due, under another number: only that message claims it."""
    job = enqueue(producer)
    [stale] = queue.dispatch()
    job.change(not_before=SOON)
    assert queue.dispatch() == []
    job.change(not_before=None)
    [fresh] = queue.dispatch()
    assert (fresh.job_id, fresh.dispatch_no) == (job.id, stale.dispatch_no + 1)


@pytest.mark.parametrize("sql", [RUNNING, "UPDATE job SET state = 'cancelled', finished_at = now()"])
def test_what_no_longer_waits_is_left(queue: Queue, producer: Producer, sql: str) -> None:
    job = enqueue(producer)
    queue.rows(sql)
    before = queue.rows("SELECT * FROM job")
    assert not job.change(priority=5, deadline=LAST)
    assert queue.rows("SELECT * FROM job") == before
    assert queue.rows("SELECT * FROM job_event") == []


def test_a_job_about_to_be_cancelled_is_left(queue: Queue, producer: Producer) -> None:
    job = enqueue(producer)
    queue.rows("UPDATE job SET cancel_requested = true")
    assert not job.change(priority=5)


def test_jobs_of_others_do_not_exist(queue: Queue, producer: Producer) -> None:
    job = enqueue(producer)
    with Producer(queue.settings.model_copy(update={"tenant": "other"})) as other:
        for unknown in (job.id, uuid4()):
            with pytest.raises(UnknownJobError):
                other.change(unknown, priority=5)
    assert job.refresh().priority == 0


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("change", {}),
        ("priority", {"priority": 101}),
        ("priority", {"priority": None}),
        ("deadline", {"deadline": NOW - timedelta(days=1)}),
        ("deadline", {"deadline": datetime(2099, 1, 1)}),  # noqa: DTZ001
        ("deadline", {"deadline": "soon"}),
        ("not_before", {"not_before": datetime(2300, 1, 1, tzinfo=UTC)}),
        ("not_before", {"not_before": LATER, "deadline": SOON}),
        ("not_before", {"not_before": LAST}),
        ("not_before", {"deadline": SOON}),
    ],
)
def test_what_enqueue_refuses_is_refused(
    producer: Producer, in_memory: bool, field: str, given: dict[str, Any]
) -> None:
    """Also a time that does not agree with one that the job has."""
    asked = InMemoryQueue(producer.settings).producer if in_memory else producer
    job = enqueue(asked, not_before=LATER - timedelta(minutes=30), deadline=LATER)
    with pytest.raises(InvalidJobError) as caught:
        job.change(**given)
    assert caught.value.field == field
    assert job.refresh().deadline == LATER


def test_in_memory() -> None:
    queue = InMemoryQueue()
    queue.answer(Echo, {"echo": "ok"})
    job = queue.producer.enqueue(Echo(text="ok"), not_before=SOON, deadline=LAST)
    assert queue.run() == 0
    assert job.change(priority=5, not_before=None)
    assert (job.refresh().priority, job.refresh().deadline) == (5, LAST)
    assert queue.run() == 1
    assert not job.change(priority=6)
