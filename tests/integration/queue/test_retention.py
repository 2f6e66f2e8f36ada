"""The reaper deletes months that are old enough, batch by batch, and texts to which no request refers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import text

from tests.integration.admin.test_history import JOBS, MONTH, counts, with_old_months
from tests.support.echo_kind import Echo
from tests.support.queue_bench import Queue, eventually, running
from thothy_ai.db.connect import reaching
from thothy_ai.db.statements import statement
from thothy_ai.queue import retention
from thothy_ai.queue.reaper import Reaper
from thothy_ai.queue.retention import Retention

LONG = "ok" + " a long source" * 100
DAYS = 60  # at most: months 5, 4 and 3 ago are over for longer


@pytest.fixture
def aged(queue: Queue) -> Queue:
    return with_old_months(queue)


def test_nothing_goes_before_the_bill_has_closed_its_hours(queue: Queue) -> None:
    queue.rows(MONTH.format(ago=5))
    queue.rows(JOBS, ago=5, jobs=10)
    queue.rows("UPDATE usage_progress SET closed_until = now() - interval '300 days'")
    kept = keeper(queue)
    for _ in range(3):
        kept.step()
    assert counts(queue) == {10}


def keeper(queue: Queue, days: int = DAYS) -> Retention:
    """As the reaper makes it: each statement in a transaction of its own."""

    def ask(name: str, **parameters: object) -> Sequence[Any]:
        with reaching(queue.settings), queue.engine.begin() as connection:
            return connection.execute(statement(name), parameters).all()

    return Retention(queue.settings.model_copy(update={"keep_history_days": days}), ask)


def test_old_months_go_in_batches_and_the_rest_stays(aged: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 4)
    kept = keeper(aged)
    left = []
    for _ in range(9):
        kept.step()
        left.append(aged.rows("SELECT count(*) FROM job")[0][0])
    assert left == [27, 23, 21, 17, 13, 11, 7, 3, 1]
    assert counts(aged) == {1}


def test_a_month_with_an_open_job_stays(aged: Queue) -> None:
    first = "(SELECT id FROM job ORDER BY id LIMIT 1)"
    aged.rows(f"UPDATE job SET state = 'queued', finished_at = NULL WHERE id = {first}")
    kept = keeper(aged)
    for _ in range(4):
        kept.step()
    assert counts(aged) == {11}


@pytest.mark.parametrize("days", [0, 400])
def test_nothing_goes_that_is_to_be_kept(aged: Queue, days: int) -> None:
    kept = keeper(aged, days)
    for _ in range(4):
        kept.step()
    assert counts(aged) == {31}


def test_a_job_that_runs_again_keeps_its_history(aged: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is redriven between the look and the deletion."""
    monkeypatch.setattr(retention, "BATCH", 4)
    kept = keeper(aged)
    for _ in range(7):
        kept.step()  # two months are gone, and part of the third
    last = "SELECT id FROM job WHERE enqueued_at < now() - interval '45 days' ORDER BY id DESC LIMIT 1"
    [(job_id,)] = aged.rows(f"UPDATE job SET state = 'queued', finished_at = NULL WHERE id = ({last}) RETURNING id")
    for _ in range(4):
        kept.step()
    assert aged.rows("SELECT count(*) FROM job") == [(2,)]
    assert aged.rows("SELECT count(*) FROM attempt WHERE job_id = :id", id=job_id) == [(1,)]


def test_a_partition_that_is_locked_is_dropped_later(aged: Queue) -> None:
    kept = keeper(aged)
    with aged.engine.connect() as reader:
        reader.execute(text("SELECT count(*) FROM attempt"))  # as a dump, or a dashboard
        kept.step()
        assert aged.rows("SELECT count(*) FROM attempt") == [(31,)]
        reader.rollback()
    for _ in range(3):
        kept.step()
    assert counts(aged) == {1}


def test_the_reaper_does_it(aged: Queue) -> None:
    with running(Reaper(aged.settings.model_copy(update={"keep_history_days": DAYS}))):
        eventually(lambda: counts(aged) == {1})


def test_texts_without_requests_go(queue: Queue) -> None:
    first, second = queue.producer.enqueue(Echo(text=LONG)), queue.producer.enqueue(Echo(text=LONG + "!"))
    keeper(queue).step()
    assert queue.rows("SELECT count(*) FROM source_text") == [(2,)]
    queue.rows("DELETE FROM job WHERE id = :id", id=first.id)
    keeper(queue).step()
    assert queue.rows("SELECT content FROM source_text") == [(LONG + "!",)]
    assert second.state() == "queued"


def test_a_text_that_a_producer_uses_again_stays(queue: Queue) -> None:
    """Its transaction is open; and one that is being deleted is stored again, without waiting."""
    job = queue.producer.enqueue(Echo(text=LONG))
    queue.rows("DELETE FROM job WHERE id = :id", id=job.id)
    with queue.engine.connect() as producer:
        again = queue.producer.enqueue(Echo(text=LONG), connection=producer)
        keeper(queue).step()
        producer.commit()
    assert queue.rows("SELECT count(*) FROM source_text") == [(1,)]
    queue.rows("DELETE FROM job WHERE id = :id", id=again.id)
    with queue.engine.connect() as reaper:
        reaper.execute(statement("queue/drop_texts"), {"after": retention.FIRST, "limit": 10})
        queue.producer.enqueue(Echo(text=LONG))
        reaper.commit()
    assert queue.rows("SELECT content FROM source_text JOIN job_request ON text_id = id") == [(LONG,)]
    assert queue.rows("SELECT count(*) FROM source_text") == [(1,)]


def test_a_text_that_was_referred_to_after_the_look_began_stays(queue: Queue) -> None:
    """The statement's snapshot shows no reference; the foreign key knows better."""
    job = queue.producer.enqueue(Echo(text=LONG))
    queue.rows("DELETE FROM job WHERE id = :id", id=job.id)
    kept = keeper(queue)
    queue.rows(
        "CREATE FUNCTION refer() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO job_request (job_id, request, text_field, text_id)"
        " SELECT id, '{}', 'text', OLD.id FROM job; RETURN OLD; END $$;"
        " CREATE TRIGGER refer BEFORE DELETE ON source_text FOR EACH ROW EXECUTE FUNCTION refer()"
    )
    queue.producer.enqueue(Echo(text="ok"))
    queue.rows("DELETE FROM job_request")
    kept.step()  # says that it goes on later
    assert queue.rows("SELECT count(*) FROM source_text") == [(1,)]


def test_a_look_at_a_large_month_is_divided_and_a_kept_one_holds_up_no_later_one(
    aged: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last job that is looked at keeps the oldest month."""
    monkeypatch.setattr(retention, "LOOK_BATCH", 4)
    aged.rows(
        "UPDATE job SET state = 'queued', finished_at = NULL WHERE id ="
        " (SELECT max(id::text)::uuid FROM (SELECT id FROM job ORDER BY id LIMIT 10) AS oldest)"
    )
    kept, asked = keeper(aged), []
    ask = kept._ask

    def noted(name: str, **parameters: object) -> Sequence[Any]:
        rows = ask(name, **parameters)
        if name == "queue/month_kept":
            asked.append((rows[0].jobs, rows[0].kept))
        return rows

    monkeypatch.setattr(kept, "_ask", noted)
    for _ in range(9):
        kept.step()
    assert asked == [
        (4, False),
        (4, False),
        (2, True),
        (4, False),
        (4, False),
        (2, False),
        *[(4, False)] * 2,
        (2, False),
    ]
    assert counts(aged) == {11}
