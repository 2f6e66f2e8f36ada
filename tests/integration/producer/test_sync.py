"""The producer against a real Postgres: idempotency, batches, and the error for each bad input."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, event, text

from tests.support.patience import PATIENCE
from thothy_ai.db.states import JobState
from thothy_ai.errors import (
    ConfigError,
    DatabaseUnreachableError,
    IdempotencyConflictError,
    InvalidJobError,
)
from thothy_ai.jobs import Hook, Request, TrendSummary, registry
from thothy_ai.producer import EnqueueOptions, Producer
from thothy_ai.producer.drafts import parse_request
from thothy_ai.settings import Settings

SOURCE = "Fermentation crocks sold out in March. Makers say that the waiting list is now nine weeks long."
NOW = datetime.now(UTC)


def rows(engine: Engine, query: str) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(text(query)).all())


def test_a_job_and_its_request_are_written(producer: Producer, engine: Engine) -> None:
    request = TrendSummary(source=SOURCE, audience="indie founders")
    deadline = NOW + timedelta(hours=1)
    job = producer.enqueue(request, priority=5, deadline=deadline, idempotency_key="2026-11-21/crocks")
    [row] = rows(engine, "SELECT * FROM job JOIN job_request ON job_id = id")
    assert (row.id, row.kind, row.state) == (job.id, "trend_summary", "queued")
    assert (row.priority, row.deadline, row.max_attempts, row.attempt) == (5, deadline, 3, 0)
    assert (row.tenant, row.idempotency_key) == ("default", "2026-11-21/crocks")
    assert row.source_key == registry.find("trend_summary").source_key(request)
    assert TrendSummary.model_validate(row.request) == request
    assert job.state() is JobState.QUEUED


def test_ids_are_uuidv7_in_the_order_given(producer: Producer) -> None:
    ids = [job.id for job in producer.enqueue_many(Hook(source=SOURCE) for _ in range(50))]
    assert ids == sorted(ids)
    assert {job_id.version for job_id in ids} == {7}


def test_the_same_key_and_request_give_the_first_job(producer: Producer, engine: Engine) -> None:
    first = producer.enqueue(Hook(source=SOURCE), idempotency_key="k", priority=1)
    again = producer.enqueue(Hook(source=SOURCE), idempotency_key="k", priority=9)
    assert again.id == first.id
    assert rows(engine, "SELECT priority FROM job JOIN job_request ON job_id = id") == [(1,)]


def test_the_same_key_with_another_request_is_a_conflict(producer: Producer, engine: Engine) -> None:
    producer.enqueue(Hook(source=SOURCE), idempotency_key="k")
    with pytest.raises(IdempotencyConflictError, match="'k'"):
        producer.enqueue(TrendSummary(source=SOURCE), idempotency_key="k")
    assert rows(engine, "SELECT count(*) FROM job") == [(1,)]


def test_a_conflict_anywhere_in_a_batch_leaves_nothing_of_it(producer: Producer, engine: Engine) -> None:
    first = producer.enqueue(Hook(source=SOURCE), idempotency_key="taken")
    batch = [Hook(source=SOURCE), (Hook(source="Something else."), EnqueueOptions(idempotency_key="taken"))]
    with pytest.raises(IdempotencyConflictError) as caught:
        producer.enqueue_many(batch)
    assert (caught.value.key, caught.value.entry, caught.value.job_id) == ("taken", 1, first.id)
    said = f"idempotency key 'taken' already belongs to a different request, that of job {first.id}"
    assert str(caught.value) == f"entry 1: {said}"
    with pytest.raises(IdempotencyConflictError) as alone:
        producer.enqueue(Hook(source="Something else."), idempotency_key="taken")
    assert (str(alone.value), alone.value.entry) == (said, None)
    assert rows(engine, "SELECT count(*) FROM job") == [(1,)]


def test_two_entries_with_one_key_and_different_requests_are_both_named(producer: Producer, engine: Engine) -> None:
    keyed = EnqueueOptions(idempotency_key="k")
    batch = [
        Hook(source="zero"),
        (Hook(source="one"), keyed),
        (Hook(source="one"), keyed),
        (Hook(source="three"), keyed),
    ]
    with pytest.raises(IdempotencyConflictError) as caught:
        producer.enqueue_many(batch)
    assert (caught.value.entry, caught.value.other, caught.value.job_id) == (3, 1, None)
    assert str(caught.value).startswith("entry 3: idempotency key 'k' already belongs")
    assert str(caught.value).endswith(", that of entry 1")
    assert rows(engine, "SELECT count(*) FROM job") == [(0,)]


class Unheard(Request):
    """No kind has it."""


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (Hook.model_construct(source=" "), "source: is empty"),
        ((Hook(source=SOURCE), EnqueueOptions(priority=101)), "priority: 101 is not a whole number from -100 to 100"),
        ((Hook(source=SOURCE), EnqueueOptions(idempotency_key="")), "idempotency_key: must be text of 1 to 500"),
        (Unheard(), "request: no kind has the request class 'Unheard'"),
        ({"source": SOURCE}, "request: must be a request, or a pair of a request and its EnqueueOptions"),
        ((Hook(source=SOURCE), {"priority": 1}), "request: must be a request, or a pair of a request and its Enq"),
    ],
    ids=["request", "option", "key", "kind", "mapping", "pair"],
)
def test_an_invalid_entry_is_named_by_its_index(producer: Producer, engine: Engine, entry: Any, says: str) -> None:
    with pytest.raises(InvalidJobError) as caught:
        producer.enqueue_many([*(Hook(source=SOURCE) for _ in range(17)), entry])
    assert caught.value.entry == 17
    assert str(caught.value).startswith(f"entry 17: {says}")
    assert rows(engine, "SELECT count(*) FROM job") == [(0,)]


def test_a_job_knows_whether_it_existed(producer: Producer) -> None:
    keyed = EnqueueOptions(idempotency_key="k")
    assert [producer.enqueue(Hook(source=SOURCE), idempotency_key="k").existed for _ in range(2)] == [False, True]
    jobs = producer.enqueue_many([Hook(source=SOURCE), (Hook(source=SOURCE), keyed)])
    assert [job.existed for job in jobs] == [False, True]
    other = EnqueueOptions(idempotency_key="other")
    assert [job.existed for job in producer.enqueue_many([(Hook(source=SOURCE), other)] * 2)] == [False, True]
    assert producer.job(jobs[0].id).existed


def test_a_key_twice_in_one_batch_is_one_job(producer: Producer, engine: Engine) -> None:
    keyed = EnqueueOptions(idempotency_key="k")
    first, plain, second = producer.enqueue_many(
        [(Hook(source=SOURCE), keyed), Hook(source=SOURCE), (Hook(source=SOURCE), keyed)]
    )
    assert first.id == second.id != plain.id
    assert rows(engine, "SELECT count(*) FROM job_request") == [(2,)]


def test_concurrent_batches_with_the_same_keys_create_each_job_once(producer: Producer, engine: Engine) -> None:
    keys = [f"key-{number}" for number in range(40)]

    def enqueue(order: int) -> dict[str, UUID]:
        mine = keys if order % 2 else keys[::-1]  # opposite orders must not deadlock
        jobs = producer.enqueue_many((Hook(source=SOURCE), EnqueueOptions(idempotency_key=key)) for key in mine)
        return dict(zip(mine, (job.id for job in jobs), strict=True))

    with ThreadPoolExecutor(4) as threads:
        first, *others = threads.map(enqueue, range(8))
    assert all(other == first for other in others)
    assert rows(engine, "SELECT count(*) FROM job JOIN job_request ON job_id = id") == [(40,)]


def test_tenants_do_not_share_keys(producer: Producer, settings: Settings) -> None:
    first = producer.enqueue(Hook(source=SOURCE), idempotency_key="k")
    with Producer(settings.model_copy(update={"tenant": "other"})) as other:
        assert other.enqueue(TrendSummary(source=SOURCE), idempotency_key="k").id != first.id


def test_thousands_take_one_statement(producer: Producer, engine: Engine) -> None:
    statements: list[str] = []
    event.listen(producer._engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    jobs = producer.enqueue_many(Hook(source=f"{SOURCE} {number}") for number in range(5000))
    assert len(statements) == 1
    assert len({job.id for job in jobs}) == 5000
    assert rows(engine, "SELECT count(*), count(DISTINCT source_key) FROM job JOIN job_request ON job_id = id") == [
        (5000, 5000)
    ]


def test_an_empty_batch_does_not_use_the_database(settings: Settings) -> None:
    unreachable = Settings.load(database_url="postgresql://u:p@127.0.0.1:1/d")
    with Producer(unreachable) as producer:
        assert producer.enqueue_many([]) == []


def test_enqueueing_notifies_listeners(producer: Producer, engine: Engine) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("LISTEN thothy_queued"))
        producer.enqueue_many([Hook(source=SOURCE), Hook(source=SOURCE)])
        driver = connection.connection.driver_connection
        assert driver is not None
        assert [note.channel for note in driver.notifies(timeout=PATIENCE, stop_after=1)] == ["thothy_queued"]


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("deadline", {"deadline": NOW - timedelta(seconds=1)}),
        ("deadline", {"deadline": datetime(2099, 1, 1)}),  # noqa: DTZ001 - deliberately without a zone
        ("deadline", {"deadline": "2099-01-01"}),
        ("not_before", {"not_before": datetime(2099, 1, 1)}),  # noqa: DTZ001
        ("not_before", {"not_before": NOW + timedelta(hours=2), "deadline": NOW + timedelta(hours=1)}),
        ("priority", {"priority": 101}),
        ("priority", {"priority": -101}),
        ("priority", {"priority": 1.5}),
        ("priority", {"priority": True}),
        ("max_attempts", {"max_attempts": 0}),
        ("max_attempts", {"max_attempts": 40000}),
        ("idempotency_key", {"idempotency_key": ""}),
        ("idempotency_key", {"idempotency_key": "k" * 501}),
        ("idempotency_key", {"idempotency_key": "a\0b"}),
        ("idempotency_key", {"idempotency_key": "a\ud800"}),
    ],
)
def test_bad_options_are_refused_by_name(
    producer: Producer, engine: Engine, field: str, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidJobError) as caught:
        producer.enqueue(Hook(source=SOURCE), **options)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)
    assert rows(engine, "SELECT count(*) FROM job") == [(0,)]


@pytest.mark.parametrize("source", ["a\0b", "a\ud800b", "", "   "])
def test_unencodable_and_blank_texts_are_rejected(producer: Producer, source: str) -> None:
    unchecked = Hook.model_construct(source=source)
    with pytest.raises(InvalidJobError):
        producer.enqueue(unchecked)
    with pytest.raises(InvalidJobError) as caught:
        parse_request("hook", {"source": source})
    assert caught.value.field == "source"


def test_a_text_of_a_third_of_a_million_characters_is_taken(producer: Producer, engine: Engine) -> None:
    producer.enqueue(Hook(source="word " * 66_666))
    assert rows(engine, "SELECT length(content) FROM source_text JOIN job_request ON text_id = id") == [(333_330,)]


def test_requests_of_no_kind_are_refused(producer: Producer) -> None:
    class Unheard(Request):
        pass

    with pytest.raises(InvalidJobError, match="Unheard"):
        producer.enqueue(Unheard())
    with pytest.raises(InvalidJobError, match="unknown kind 'sonnet'") as caught:
        parse_request("sonnet", {})
    assert caught.value.field == "kind"


def test_an_unreachable_database_is_named_without_its_password(clean_environment: None) -> None:
    settings = Settings.load(database_url="postgresql://me:hunter2@127.0.0.1:1/thothy")
    with Producer(settings) as producer:
        for action in (lambda: producer.enqueue(Hook(source=SOURCE)), lambda: producer.job(uuid4())):
            with pytest.raises(DatabaseUnreachableError, match=r"127\.0\.0\.1:1") as caught:
                action()
            assert "hunter2" not in str(caught.value)


def test_a_wrong_password_is_an_unreachable_database(settings: Settings) -> None:
    url = settings.require_database_url()
    wrong = Settings.load(database_url=url.replace("thothy:", "thothy:x", 1))
    with Producer(wrong) as producer, pytest.raises(DatabaseUnreachableError, match="password authentication failed"):
        producer.enqueue(Hook(source=SOURCE))


def test_without_a_database_there_is_no_producer(clean_environment: None, settings: Settings) -> None:
    with pytest.raises(ConfigError, match="THOTHY_DATABASE_URL is not set"):
        Producer(Settings.load(home=settings.home))


def test_kinds_that_cannot_be_loaded_are_a_configuration_error(settings: Settings) -> None:
    with pytest.raises(ConfigError, match=r"THOTHY_KINDS: there is no module 'no.such.module' installed"):
        Producer(settings.model_copy(update={"kinds": ("no.such.module",)}))
