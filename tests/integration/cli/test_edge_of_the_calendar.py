"""Jobs with times that no local clock shows, stored before they were refused: each view and each worker takes them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.support.command_line import Run, one_line
from tests.support.echo_kind import Echo
from tests.support.queue_bench import Queue
from thothy_ai.errors import InvalidJobError

STORED = ("9999-12-31 20:00+00", "10000-01-01 04:00+00", "infinity", "0001-01-01 00:00+00", "0044-03-15+00 BC")
VIEWS = (
    ("jobs", "list"),
    ("jobs", "list", "--json"),
    ("jobs", "cancel", "--all", "--dry-run"),
    ("queue", "status"),
    ("queue", "status", "--json"),
    ("drain", "--timeout", "0s"),
    ("top", "--once"),
    ("report", "--since", "1h"),
    ("report", "bill", "--since", "1h"),
    ("report", "drains"),
    ("report", "check"),
    ("report", "forecast"),
    ("dead", "list"),
)


@pytest.fixture(params=["Asia/Tokyo", "America/Los_Angeles"])
def _local_zone(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("_local_zone")
@pytest.mark.parametrize("column", ["not_before", "deadline", "enqueued_at"])
def test_every_view_shows_what_is_stored(queue: Queue, run: Run, column: str) -> None:
    ids = queue.enqueue(*(f"ok {stored}" for stored in STORED))
    for job_id, stored in zip(ids, STORED, strict=True):
        queue.rows(f"UPDATE job SET {column} = CAST(:at AS timestamptz) WHERE id = :id", at=stored, id=job_id)
    queue.rows("UPDATE job SET delayed = not_before > now(), scheduled_for = not_before")
    for job_id in ids:
        run("jobs", "show", job_id)
        assert json.loads(run("jobs", "show", job_id, "--json").stdout)["id"] == str(job_id)
    for view in VIEWS:
        done = run(*view, exit_code=int(view[0] == "drain"))
        assert "unexpected" not in done.output
    queue.dispatch()
    run("drain", "--timeout", "0s", "--include-delayed", exit_code=1)
    run("jobs", "cancel", *ids)


@pytest.mark.parametrize("field", ["not_before", "deadline"])
@pytest.mark.parametrize(
    "moment",
    [
        datetime(9999, 12, 31, 20, tzinfo=UTC),
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=14))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime(2200, 1, 1, tzinfo=UTC),
    ],
)
def test_new_jobs_name_times_of_a_calendar_of_work(
    queue: Queue, run: Run, tmp_path: Path, field: str, moment: datetime
) -> None:
    with pytest.raises(InvalidJobError, match=rf"^{field}: .* is not from 1970 to 2199$"):
        queue.producer.enqueue(Echo(text="ok"), **{field: moment})
    option = f"--{field.replace('_', '-')}"
    says = f"{moment.isoformat()!r} is not from 1970 to 2199"
    assert says in run("enqueue", "hook", "--source", "Crocks.", option, moment.isoformat(), exit_code=2).stderr
    file = tmp_path / "jobs.jsonl"
    file.write_text(json.dumps({"kind": "hook", "request": {"source": "Crocks."}, field: moment.isoformat()}))
    assert one_line(run("enqueue", "--jsonl", file, exit_code=2)) == f"{file}:1: {field}: {says}"
    assert queue.open() == 0


def test_an_offset_of_any_fraction_is_a_time(queue: Queue) -> None:
    """Postgres reads no offset with fractions of a second."""
    later = datetime.now(timezone(timedelta(hours=2, microseconds=7))) + timedelta(days=1)
    job = queue.producer.enqueue(Echo(text="ok"), not_before=later, deadline=later + timedelta(days=1))
    assert queue.job(job.id).not_before == later
