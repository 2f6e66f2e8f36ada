"""The timeline's bins and percentiles against rows with sums computed by hand, and against the report's figures."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, insert

from thothy_ai.admin.report.drain_report import DrainReport, drain_report
from thothy_ai.admin.report.timeline import (
    ACCEPTED,
    IDLE,
    INTERACTIVE,
    LOST,
    REJECTED,
    UNSUCCESSFUL,
    Timeline,
    report_with_timeline,
)
from thothy_ai.db.models import AttemptRow, EngineSessionRow, JobRow
from thothy_ai.db.states import JobState
from thothy_ai.db.usage_models import InteractiveUsageRow

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SEVERAL = 200  # jobs


def at(seconds: float) -> datetime:
    """A moment, in seconds after noon."""
    return NOON + seconds * SECOND


def job(number: int, *, state: str = "succeeded", kind: str = "hook", wait: float = 0.0) -> dict[str, object]:
    """A job that finishes `number` * 10 seconds after noon."""
    fixed = {"tenant": "t", "source_key": "s", "request_digest": "d", "max_attempts": 3, "reason": "x"}
    end = at(number * 10)
    times = {"enqueued_at": end - (1 + wait) * SECOND, "not_before": end - (1 + wait) * SECOND, "finished_at": end}
    return {"id": uuid4(), "kind": kind, "state": state, **fixed, **times}


def attempt(of: dict[str, object], box: UUID, *, outcome: str = "succeeded", run: float = 1.0) -> dict[str, object]:
    """A job's first attempt, of half a second on the device."""
    used = {"prompt_tokens": 100, "cached_tokens": 60, "output_tokens": 7, "compute_seconds": 0.5}
    end = of["finished_at"]
    assert isinstance(end, datetime)
    times = {"started_at": end - run * SECOND, "finished_at": end}
    same = {"tenant": "t", "kind": of["kind"], "worker": "w", "engine_session_id": box, "outcome": outcome}
    return {"job_id": of["id"], "attempt": 1, **same, **times, **used}


def add_box(engine: Engine, start: datetime, end: datetime, gpus: int = 2) -> UUID:
    made = uuid4()
    sizes = {"model": "smollm2", "dtype": "bfloat16", "num_blocks": 100, "block_size": 16}
    row = {"id": made, "device": "cuda:0", "gpus": gpus, "started_at": start, "heartbeat_at": end, "ended_at": end}
    with engine.begin() as connection:
        connection.execute(insert(EngineSessionRow), {**row, **sizes})
    return made


@pytest.fixture
def busy(engine: Engine) -> tuple[DrainReport, Timeline]:
    """200 jobs in 2,000 seconds of 3,600; the engine is resident for the first 3,000, on two GPUs."""
    box = add_box(engine, at(-600), at(3000))
    states = ("succeeded", "succeeded", "succeeded", "dead", "cancelled", "expired", "succeeded")
    outcomes = ("succeeded", "rejected", "failed", "lost", "cancelled", "expired", "released")
    jobs = [job(n, state=states[n % 7], kind=f"k{n % 3}", wait=n % 10) for n in range(SEVERAL)]
    attempts = [attempt(of, box, outcome=outcomes[n % 7], run=1 + n % 5) for n, of in enumerate(jobs)]
    with engine.begin() as connection:
        connection.execute(insert(JobRow), jobs)
        connection.execute(insert(AttemptRow), attempts)
    return report_with_timeline(engine, NOON, at(3600))


def test_bins_add_up_to_the_report(engine: Engine, busy: tuple[DrainReport, Timeline]) -> None:
    report, timeline = busy
    assert report == drain_report(engine, NOON, at(3600))
    total, bins = report.total, timeline.bins
    for state in JobState:
        assert sum(of.jobs.get(state, 0) for of in bins) == total.jobs[state]
    assert total.finished == SEVERAL
    assert sum(of.computed_tokens + of.cached_tokens for of in bins) == total.prompt_tokens == 100 * SEVERAL
    assert sum(of.cached_tokens for of in bins) == total.cached_tokens
    assert sum(of.output_tokens for of in bins) == total.output_tokens
    assert sum(of.resident_seconds for of in bins) == pytest.approx(total.resident_seconds)
    assert (bins[0].start, bins[-1].end) == (NOON, at(3600))


def test_a_bin_holds_what_ended_in_it(busy: tuple[DrainReport, Timeline]) -> None:
    _, timeline = busy
    first, last = timeline.bins[0], timeline.bins[-1]
    assert (first.end - first.start).total_seconds() == 120
    assert sum(first.jobs.values()) == 12
    assert (first.computed_tokens, first.cached_tokens, first.output_tokens) == (480, 720, 84)
    assert first.resident_seconds == 240
    assert first.jobs_per_compute_hour == pytest.approx(first.jobs[JobState.SUCCEEDED] * 15)
    assert last.jobs_per_compute_hour is None


def test_the_device_s_seconds_are_the_report_s(busy: tuple[DrainReport, Timeline]) -> None:
    report, timeline = busy
    seconds = timeline.device_seconds
    assert sum(seconds.values()) == pytest.approx(report.total.resident_seconds)
    assert seconds[REJECTED] + seconds[UNSUCCESSFUL] + seconds[LOST] == pytest.approx(report.total.wasted_seconds)
    assert sum(seconds[use] for use in (ACCEPTED, REJECTED, UNSUCCESSFUL, LOST)) == pytest.approx(SEVERAL)
    assert (seconds[ACCEPTED], seconds[REJECTED], seconds[IDLE]) == (29, 29, pytest.approx(6000 - SEVERAL))


def test_requests_over_http_are_no_idle_time(engine: Engine) -> None:
    box = add_box(engine, at(-600), at(3000))
    used = {"requests": 1, "prompt_tokens": 40, "cached_tokens": 0, "output_tokens": 20}
    row = {
        "tenant": "t",
        "key": "",
        "adapter": "",
        "engine_session_id": box,
        "compute_seconds": 25.0,
        "useful_seconds": 20.0,
        **used,
    }
    with engine.begin() as connection:
        connection.execute(
            insert(InteractiveUsageRow), [{**row, "id": uuid4(), "minute": at(m)} for m in (-60, 60, 120)]
        )
    _, timeline = report_with_timeline(engine, NOON, at(3600))
    assert (timeline.device_seconds[INTERACTIVE], timeline.device_seconds[IDLE]) == (100, 5900)


def test_percentiles_are_of_first_starts_and_of_attempts(engine: Engine) -> None:
    box = add_box(engine, NOON, at(3000))
    jobs = [job(n, kind="k", wait=n) for n in range(101)]
    retried, delayed = jobs[100], jobs[0]
    retried["not_before"] = retried["finished_at"]  # as a retry leaves it: later than the first start
    delayed["enqueued_at"] = at(-5000)
    attempts = [attempt(of, box, run=1 + n / 100) for n, of in enumerate(jobs)]
    for n, one in enumerate(attempts):
        one["started_at"] = at(n * 10 - 1 - n / 100)
    second = {**attempt(jobs[50], box, run=900), "attempt": 2}
    with engine.begin() as connection:
        connection.execute(insert(JobRow), jobs)
        connection.execute(insert(AttemptRow), [*attempts, second])
    _, timeline = report_with_timeline(engine, NOON, at(3600))
    waits, runs = timeline.waits["k"], timeline.runs["k"]
    assert timeline.waits[None] == waits
    assert (waits.number, runs.number) == (101, 102)
    assert waits.p50 == pytest.approx(50 * 0.99)  # each starts n hundredths of a second earlier
    assert waits.p99 == pytest.approx(99 * 0.99)
    assert runs.p50 == pytest.approx(1.505)


@pytest.mark.parametrize("span", [timedelta(minutes=2), timedelta(hours=3), timedelta(days=30), timedelta(days=400)])
def test_an_empty_window_of_any_length(engine: Engine, span: timedelta) -> None:
    report, timeline = report_with_timeline(engine, NOON - span, NOON)
    assert report.total.finished == 0
    assert 20 <= len(timeline.bins) <= 60
    assert (timeline.waits, timeline.runs) == ({}, {})
    assert sum(timeline.device_seconds.values()) == 0
