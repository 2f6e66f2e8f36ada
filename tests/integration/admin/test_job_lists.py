"""Lists of jobs, of which only so many are looked at at once: every match is found, once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tests.support.queue_bench import Queue
from thothy_ai.admin import jobs as jobs_module
from thothy_ai.admin.filters import JobFilter
from thothy_ai.admin.jobs import JobList

HOUR = timedelta(hours=1)


def looked_through(queue: Queue, listed: JobList, limit: int) -> tuple[list[UUID], int]:
    """The ids of all pages, and how many pages there were, when no look may take any time."""
    found: list[UUID] = []
    after, pages = None, 0
    while True:
        page, after = listed.look(queue.engine, after=after, limit=limit, seconds=0.0)
        found += [job["id"] for job in page]
        pages += 1
        if after is None:
            return found, pages
        assert pages < 100


@pytest.mark.parametrize("window", [1, 3, 50])
def test_a_list_that_is_looked_through_in_parts_has_every_match_once(
    queue: Queue, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "FIRST_WINDOW", window)
    ids = queue.enqueue(*(f"ok {number}" for number in range(12)))
    queue.rows("UPDATE job SET priority = 5, model = 'rare' WHERE id = ANY(:ids)", ids=[ids[0], ids[4], ids[11]])
    rare = [ids[11], ids[4], ids[0]]
    for limit in (1, 2, 12, 50):
        assert looked_through(queue, JobList(), limit)[0] == ids[::-1]
        assert looked_through(queue, JobList(JobFilter(model="rare")), limit)[0] == rare
        assert looked_through(queue, JobList(JobFilter(model="none")), limit)[0] == []
        assert looked_through(queue, JobList(JobFilter(batch=ids[3])), limit)[0] == [ids[3]]
    assert looked_through(queue, JobList(JobFilter(model="none")), 9)[1] > (1 if window < 12 else 0)
    for states in (("running",), ("dispatched", "running")):  # few at any time, which an index has
        assert looked_through(queue, JobList(JobFilter(states)), 9) == ([], 1)


def test_times_bound_what_is_looked_at(queue: Queue) -> None:
    [job] = queue.enqueue("ok")
    now = datetime.now(UTC)
    around = JobList(since=now - HOUR, until=now + HOUR)
    assert looked_through(queue, around, 5) == ([job], 1)
    for listed in (JobList(since=now + 2 * HOUR), JobList(until=now - 2 * HOUR), JobList(since=now, until=now)):
        assert looked_through(queue, listed, 5)[0] == []
