"""The planned order: priorities that age, deadlines rounded by their slack, siblings side by side."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tests.support.echo_kind import Echo
from tests.support.queue_bench import Queue
from thothy_ai.producer.drafts import EnqueueOptions

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)


def enqueue(queue: Queue, *wanted: tuple[str, EnqueueOptions]) -> list[UUID]:
    """At once: all have the same age."""
    return [job.id for job in queue.producer.enqueue_many([(Echo(text=text), options) for text, options in wanted])]


def age(queue: Queue, job_id: UUID, by: timedelta) -> None:
    """As if it had been enqueued that much earlier."""
    queue.rows("UPDATE job SET enqueued_at = enqueued_at - :by WHERE id = :id", by=by, id=job_id)


def order(queue: Queue, jobs: Sequence[UUID]) -> list[int]:
    return [jobs.index(hint.job_id) for hint in queue.dispatch()]


def due(after: timedelta, priority: int = 0) -> EnqueueOptions:
    return EnqueueOptions(deadline=datetime.now(UTC) + after, priority=priority)


PLAIN = EnqueueOptions()


def test_priority_goes_first_whatever_the_deadlines(queue: Queue) -> None:
    wanted = [
        due(10 * MINUTE),
        PLAIN,
        due(9 * DAY, 1),
        EnqueueOptions(priority=1),
        EnqueueOptions(priority=100),
        due(DAY),
    ]
    jobs = enqueue(queue, *((f"ok {number}", options) for number, options in enumerate(wanted)))
    assert order(queue, jobs) == [4, 2, 3, 0, 5, 1]


@pytest.mark.parametrize(
    ("soon", "late"), [(10 * MINUTE, DAY), (HOUR, 90 * MINUTE), (HOUR, 2 * DAY), (2 * DAY, 5 * DAY)]
)
def test_the_nearer_deadline_goes_first(queue: Queue, soon: timedelta, late: timedelta) -> None:
    jobs = enqueue(queue, ("ok a", PLAIN), ("ok b", due(late)), ("ok c", due(soon)))
    assert order(queue, jobs) == [2, 1, 0]


def test_a_near_deadline_goes_before_older_jobs_that_are_due_later(queue: Queue) -> None:
    jobs = enqueue(queue, ("ok a", due(DAY)), ("ok b", PLAIN), ("ok c", due(10 * MINUTE)))
    age(queue, jobs[0], 12 * HOUR)
    age(queue, jobs[1], 12 * HOUR)
    assert order(queue, jobs)[0] == 2


@pytest.mark.parametrize("slack", [5 * MINUTE, HOUR, 2 * HOUR, 6 * HOUR, DAY, 3 * DAY, 400 * DAY])
def test_deadlines_that_differ_little_do_not_break_up_siblings(queue: Queue, slack: timedelta) -> None:
    """Sources alternate, each deadline a little later than the one before, from the middle of a bucket on."""
    near = due(slack).deadline
    assert near is not None
    # A whole number of the widest buckets, and a quarter of that, is amid a bucket of every narrower width but one.
    width = timedelta(minutes=2 ** ((slack // MINUTE // 4).bit_length() - 1))
    since_1970 = near - datetime(1970, 1, 1, tzinfo=UTC)
    middle = near - since_1970 % width + width / 4
    texts = ["ok a", "ok b"] * 10
    jobs = enqueue(queue, *((text, EnqueueOptions(deadline=middle + n * MICROSECOND)) for n, text in enumerate(texts)))
    sources = [texts[number] for number in order(queue, jobs)]
    assert sources in (["ok a"] * 10 + ["ok b"] * 10, ["ok b"] * 10 + ["ok a"] * 10)


def test_a_deadline_is_rounded_down_by_at_most_a_quarter_of_its_slack(queue: Queue) -> None:
    [row] = queue.rows(
        "SELECT bool_and(due <= deadline AND due > deadline - slack / 4 OR slack < interval '4 minutes'),"
        " count(DISTINCT due) < 2000, min(deadline - due) >= interval '0' FROM (SELECT slack, deadline,"
        " thothy_due(deadline, now(), NULL) AT TIME ZONE 'UTC' AS due FROM (SELECT n * interval '1 minute' AS slack,"
        " now() + n * interval '1 minute' AS deadline FROM generate_series(1, 10000) AS n) AS made) AS rounded"
    )
    assert tuple(row) == (True, True, True)


@pytest.mark.parametrize("deadline", ["0001-01-01 00:00+00", "9999-12-31 23:59:59+00", "infinity"])
def test_absurd_deadlines_have_a_place_too(queue: Queue, deadline: str) -> None:
    jobs = enqueue(queue, ("ok a", PLAIN), ("ok b", PLAIN))
    queue.rows("UPDATE job SET deadline = CAST(:deadline AS timestamptz) WHERE id = :id", id=jobs[1], deadline=deadline)
    assert len(queue.dispatch()) == (1 if deadline.startswith("0") else 2)


@pytest.mark.parametrize("points", [1, 10])
def test_a_point_of_priority_counts_a_day(queue: Queue, points: int) -> None:
    jobs = enqueue(queue, ("ok a", PLAIN), ("ok b", EnqueueOptions(priority=points)))
    age(queue, jobs[0], points * DAY - HOUR)
    assert order(queue, jobs) == [1, 0]
    queue.rows("UPDATE job SET state = 'queued'")
    age(queue, jobs[0], 2 * HOUR)
    assert order(queue, jobs) == [0, 1]


def test_no_job_starves_behind_a_steady_stream_of_higher_priority(queue: Queue) -> None:
    """Each day brings more than is dispatched. A job waits for a day per point that the others have more."""
    [low] = enqueue(queue, ("ok low", PLAIN))
    served = []
    while low not in served:
        assert len(served) < 30
        enqueue(queue, *((f"ok {n}", EnqueueOptions(priority=3)) for n in range(5)))
        served += [hint.job_id for hint in queue.dispatch(places=4, urgent_places=0)]
        queue.rows("UPDATE job SET state = 'cancelled', finished_at = now() WHERE state = 'dispatched'")
        queue.rows("UPDATE job SET enqueued_at = enqueued_at - interval '1 day'")
    assert 3 * 5 < len(served) <= 4 * 5 + 4  # after those of three days, or of four, and with its own round


def test_a_job_for_later_is_no_older_than_its_time(queue: Queue) -> None:
    """Scheduled a week ago for now, it does not pass today's jobs of higher priority."""
    now = datetime.now(UTC)
    jobs = enqueue(queue, ("ok a", EnqueueOptions(not_before=now + HOUR)), ("ok b", EnqueueOptions(priority=1)))
    queue.rows(
        "UPDATE job SET delayed = false, enqueued_at = now() - interval '7 days', not_before = now() - interval '1 s',"
        " scheduled_for = now() - interval '1 s' WHERE id = :id",
        id=jobs[0],
    )
    assert order(queue, jobs) == [1, 0]


def test_when_a_job_was_scheduled_for_is_kept_from_its_enqueueing(queue: Queue) -> None:
    later = datetime.now(UTC) + HOUR
    jobs = enqueue(queue, ("ok a", EnqueueOptions(not_before=later)), ("ok b", PLAIN))
    assert [queue.job(job_id).scheduled_for for job_id in jobs] == [later, None]


def test_rows_of_an_older_release_have_a_place(queue: Queue) -> None:
    jobs = enqueue(queue, ("ok a", due(HOUR)), ("ok b", EnqueueOptions(priority=-3)), ("ok c", PLAIN))
    queue.rows("UPDATE job SET scheduled_for = NULL")
    assert order(queue, jobs) == [0, 2, 1]
