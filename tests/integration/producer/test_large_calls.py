"""Calls that take several statements: each is bounded, and together they are one transaction."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import UUID

import pytest
from sqlalchemy import event

from tests.support.echo_kind import Echo
from tests.support.queue_bench import Queue
from thothy_ai.admin import jobs as admin_jobs
from thothy_ai.errors import IdempotencyConflictError, InvalidJobError
from thothy_ai.producer import Producer
from thothy_ai.producer.drafts import EnqueueOptions

ROWS = "SELECT count(*) AS jobs, count(DISTINCT enqueued_at) AS calls FROM job JOIN job_request ON job_id = id"
MEGABYTE = 1_000_000


@pytest.fixture(autouse=True)
def _small_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thothy_ai.producer.drafts.STATEMENT_CHARS", 5_000)
    monkeypatch.setattr("thothy_ai.producer.drafts.STATEMENT_JOBS", 7)
    monkeypatch.setattr("thothy_ai.producer.gathering.JOBS_AT_ONCE", 7)
    monkeypatch.setattr("thothy_ai.admin.jobs.BATCH", 7)


@contextmanager
def sizes(producer: Producer) -> Iterator[list[int]]:
    """The characters of each statement's parameters."""
    found: list[int] = []

    def note(*call: object) -> None:
        found.append(len(str(call[3])))

    event.listen(producer._engine, "before_cursor_execute", note)
    yield found
    event.remove(producer._engine, "before_cursor_execute", note)


@pytest.mark.parametrize(
    ("texts", "least", "most"),
    [
        ([f"ok {number}" for number in range(50)], 8, 8),
        ([f"ok {number} " + "word " * 600 for number in range(8)], 4, 4),
        (["ok " + "word " * 600] * 14, 2, 2),  # siblings: their text is sent with each statement, once
        (["ok " + '"\\\n' * 900, *(f"ok {number}" for number in range(3))], 1, 1),
    ],
    ids=["many", "long", "siblings", "escaped"],
)
def test_a_call_takes_several_statements_and_one_transaction(
    queue: Queue, texts: list[str], least: int, most: int
) -> None:
    with sizes(queue.producer) as sent:
        jobs = queue.producer.enqueue_many(Echo(text=text) for text in texts)
    assert least <= len(sent) <= most
    assert max(sent) < 25_000
    assert queue.rows(ROWS) == [(len(texts), 1)]
    assert [admin_jobs.show_job(queue.engine, job.id)["request"]["text"] for job in jobs] == texts
    assert [job.existed for job in jobs] == [False] * len(texts)


def test_equal_keys_are_one_job_in_whichever_statements_they_are(queue: Queue) -> None:
    before = queue.producer.enqueue(Echo(text="ok 3"), idempotency_key="key-3")
    numbers = [number % 20 for number in range(100)]
    entries = [(Echo(text=f"ok {each}"), EnqueueOptions(idempotency_key=f"key-{each}")) for each in numbers]
    jobs = queue.producer.enqueue_many([*entries, Echo(text="ok")])
    assert queue.rows(ROWS)[0].jobs == 21
    assert len({job.id for job in jobs}) == 21
    assert jobs[3].id == before.id
    assert [job.id for job in jobs[:20]] * 5 == [job.id for job in jobs[:100]]
    assert [job.existed for job in jobs] == [each == 3 for each in range(20)] + [True] * 80 + [False]


def test_a_conflict_in_any_statement_leaves_nothing(queue: Queue) -> None:
    first = queue.producer.enqueue(Echo(text="ok first"), idempotency_key="taken")
    entries = [(Echo(text=f"ok {each}"), EnqueueOptions(idempotency_key=f"k{each:03}")) for each in range(40)]
    entries.insert(20, (Echo(text="ok other"), EnqueueOptions(idempotency_key="taken")))
    with pytest.raises(IdempotencyConflictError) as caught:
        queue.producer.enqueue_many(entries)
    assert (caught.value.entry, caught.value.job_id) == (20, first.id)
    assert queue.rows(ROWS)[0].jobs == 1


def test_calls_with_the_same_keys_in_any_order_do_not_deadlock(queue: Queue) -> None:
    """Keys that a locale sorts otherwise than their code points, in calls of one statement and of several."""
    keys = [f"{letter}{number}" for number in range(4) for letter in "aBcDéZ_-"]

    def enqueue(order: int) -> dict[str, UUID]:
        mine = (keys, keys[::-1], keys[:6], sorted(keys[-6:]))[order % 4]
        jobs = queue.producer.enqueue_many((Echo(text="ok"), EnqueueOptions(idempotency_key=key)) for key in mine)
        return dict(zip(mine, (job.id for job in jobs), strict=True))

    with ThreadPoolExecutor(4) as threads:
        first, *others = threads.map(enqueue, range(12))
    assert all(other.items() <= first.items() for other in others)
    assert queue.rows(ROWS)[0].jobs == len(keys)


def test_what_is_too_large_is_refused_by_name(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thothy_ai.queue.canonical.MAX_REQUEST_CHARS", 10_000)
    monkeypatch.setattr("thothy_ai.producer.drafts.MAX_CALL_CHARS", 25_000)
    with pytest.raises(InvalidJobError, match=r"^request: has 12,\d\d\d characters as JSON; the limit is 10,000$"):
        queue.producer.enqueue(Echo(text="x" * 12_000))
    with pytest.raises(InvalidJobError, match=r"^entry 3: request: the call has more than 25,000 characters; divide"):
        queue.producer.enqueue_many(Echo(text=f"ok {number}" + "x" * 8_000) for number in range(9))
    assert queue.rows(ROWS)[0].jobs == 0
    assert len(queue.producer.enqueue_many([Echo(text="ok" + "x" * 8_000)] * 9)) == 9, "one text, counted once"


def test_memory_is_a_small_multiple_of_the_input(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thothy_ai.producer.drafts.STATEMENT_CHARS", 2 * MEGABYTE)
    producer = queue.producer
    tracemalloc.start()
    try:
        requests = [Echo(text=f"ok {number} " + "x" * MEGABYTE) for number in range(24)]
        tracemalloc.reset_peak()
        producer.enqueue_many(requests)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(requests) * MEGABYTE


def test_many_jobs_are_waited_for_and_queued_again_in_parts(queue: Queue) -> None:
    jobs = queue.producer.enqueue_many(Echo(text=f"ok {number}") for number in range(40))
    ids = [job.id for job in jobs]
    assert len(admin_jobs.cancel(queue.engine, ids)) == 40
    with sizes(queue.producer) as sent:
        assert [one.snapshot.id for one in queue.producer.wait_all(jobs, 60)] == ids
    assert len(sent) == 6
    assert admin_jobs.redrive(queue.engine, ids) == set(ids)
    assert queue.count("queued") == 40
