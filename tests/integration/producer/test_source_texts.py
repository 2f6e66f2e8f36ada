"""A long text is stored once for all requests of its tenant, and read back by everything that reads requests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from uuid import UUID

from sqlalchemy import text

from tests.support.echo_kind import Echo
from tests.support.queue_bench import Queue, runner_bench
from thothy_ai.admin import jobs as admin_jobs
from thothy_ai.producer import Producer
from thothy_ai.producer.drafts import EnqueueOptions

LONG = "ok" + " a long source" * 100
ODD = LONG + " “quoted” 'so' \\ \"so\" \n\t 𝄞 %s :x {y}"
OTHER = LONG + "!"
STORED = "SELECT tenant, content FROM source_text ORDER BY tenant, length(content)"
REFERENCES = "SELECT count(*) AS requests, count(text_id) AS shared, count(DISTINCT text_id) AS texts FROM job_request"


def claim(queue: Queue) -> dict[UUID, dict[str, str]]:
    """The requests of all waiting jobs, as a worker gets them."""
    hints = queue.dispatch()
    given = {"ids": [hint.job_id for hint in hints], "dispatch_nos": [hint.dispatch_no for hint in hints]}
    rows = queue.ask("worker/claim", **given, worker="w", lease_seconds=60, engine_session_id=None, model_name="")
    return {row.id: row.request for row in rows}


def test_siblings_share_one_text_and_are_read_back_whole(queue: Queue) -> None:
    jobs = [queue.producer.enqueue(Echo(text=LONG)) for _ in range(3)]
    jobs += queue.producer.enqueue_many([Echo(text=LONG), Echo(text=OTHER), Echo(text="ok short"), Echo(text=ODD)])
    assert queue.rows(STORED) == [("default", LONG), ("default", OTHER), ("default", ODD)]
    assert queue.rows(REFERENCES) == [(7, 6, 3)]
    assert queue.rows("SELECT max(length(CAST(request AS text))) < 200 FROM job_request") == [(True,)]
    assert [admin_jobs.show_job(queue.engine, job.id)["request"]["text"] for job in jobs[3:]] == [
        LONG, OTHER, "ok short", ODD,
    ]  # fmt: skip
    claimed = claim(queue)
    assert [claimed[job.id]["text"] for job in jobs] == [LONG, LONG, LONG, LONG, OTHER, "ok short", ODD]


def test_a_job_that_existed_stores_nothing(queue: Queue) -> None:
    queue.producer.enqueue(Echo(text=LONG), idempotency_key="k")
    queue.rows("UPDATE job_request SET text_id = NULL, text_field = NULL")
    queue.rows("DELETE FROM source_text")
    assert queue.producer.enqueue(Echo(text=LONG), idempotency_key="k").existed
    assert queue.rows("SELECT count(*) FROM source_text") == [(0,)]
    [first, second] = queue.producer.enqueue_many([(Echo(text=LONG), EnqueueOptions(idempotency_key="two"))] * 2)
    assert first.id == second.id
    assert queue.rows(REFERENCES) == [(2, 1, 1)]


def test_tenants_do_not_share(queue: Queue) -> None:
    queue.producer.enqueue(Echo(text=LONG))
    with Producer(queue.settings.model_copy(update={"tenant": "other"})) as other:
        other.enqueue(Echo(text=LONG))
    assert queue.rows(STORED) == [("default", LONG), ("other", LONG)]


def test_nothing_waits_for_a_transaction_that_stores_the_same_text(queue: Queue) -> None:
    """Two transactions store two texts in opposite orders: with a unique key they would deadlock."""
    with queue.engine.connect() as one, queue.engine.connect() as two:
        for connection in (one, two):
            connection.execute(text("SET LOCAL lock_timeout = '1ms'"))
        queue.producer.enqueue(Echo(text=LONG), connection=one)
        queue.producer.enqueue(Echo(text=OTHER), connection=two)
        queue.producer.enqueue(Echo(text=OTHER), connection=one)
        queue.producer.enqueue(Echo(text=LONG), connection=two)
        one.commit()
        two.commit()
    queue.producer.enqueue_many([Echo(text=LONG), Echo(text=OTHER)])
    assert queue.rows(REFERENCES) == [(6, 6, 4)]
    assert queue.rows("SELECT count(*) FROM source_text") == [(4,)]


def test_texts_of_follow_ups_are_shared_too(queue: Queue) -> None:
    """They are other texts than the parent's; each is there once, however often it is asked for."""
    queue.producer.enqueue_many([Echo(text=LONG, more=2), Echo(text=LONG, more=2)])
    with runner_bench(queue) as bench:
        bench.settle()
    assert queue.rows("SELECT state, count(*) FROM job GROUP BY state") == [("succeeded", 6)]
    [(requests, shared, texts)] = queue.rows(REFERENCES)
    assert (requests, shared) == (6, 6)
    assert 3 <= texts <= 5  # the parents may have ended in two transactions at once
    assert {row.content for row in queue.rows(STORED)} == {LONG, f"{LONG} 0", f"{LONG} 1"}


def test_a_rolled_back_transaction_leaves_no_text(queue: Queue) -> None:
    with queue.engine.connect() as connection:
        queue.producer.enqueue(Echo(text=LONG), connection=connection)
        connection.rollback()
    assert queue.rows("SELECT count(*) FROM source_text") == [(0,)]


def test_many_producers_at_once(queue: Queue) -> None:
    start = Barrier(4)

    def enqueue(_: int) -> None:
        start.wait()
        for _ in range(10):
            queue.producer.enqueue_many([Echo(text=LONG), Echo(text=OTHER)])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(enqueue, range(4)))
    [(requests, shared, texts)] = queue.rows(REFERENCES)
    assert (requests, shared) == (80, 80)
    assert 2 <= texts <= 8  # at most one copy per producer that was first
