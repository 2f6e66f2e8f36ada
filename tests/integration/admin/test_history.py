"""Old months of history go as a whole, and only when all of their jobs have ended."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner

from tests.support.hours import wait_out_the_hour
from tests.support.queue_bench import Queue
from thothy_ai.admin import history
from thothy_ai.cli import app, shell
from thothy_ai.queue.books import close_hours

# A month's partitions, and in them finished jobs with an attempt and an event each.
MONTH = """
    DO $$
    DECLARE
        parent text;
        month timestamptz := date_trunc('month', now()) - make_interval(months => {ago});
    BEGIN
        FOREACH parent IN ARRAY ARRAY['attempt', 'artifact', 'job_event'] LOOP
            EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                           parent || to_char(month AT TIME ZONE 'UTC', '_YYYY_MM'), parent,
                           thothy_uuid_floor(month), thothy_uuid_floor(month + interval '1 month'));
        END LOOP;
    END $$
"""
JOBS = """
    WITH made AS (
        INSERT INTO job (id, tenant, kind, source_key, request_digest, max_attempts, state, enqueued_at, finished_at)
        SELECT uuidv7(moment - now()), 't', 'echo', 's', 'd', 3, 'succeeded', moment, moment
        FROM (SELECT date_trunc('month', now()) - make_interval(months => :ago) + n * interval '1 minute' AS moment
              FROM generate_series(1, :jobs) AS n) AS moments
        RETURNING id, finished_at AS moment
    ), bodies AS (
        INSERT INTO job_request SELECT id, '{"text": "x"}' FROM made
    ), events AS (
        INSERT INTO job_event (job_id, event) SELECT id, 'retried' FROM made
    )
    INSERT INTO attempt (job_id, attempt, tenant, kind, worker, started_at, finished_at, outcome)
    SELECT id, 1, 't', 'echo', 'w', moment, moment, 'succeeded' FROM made
"""
TABLES = ("job", "job_request", "attempt", "job_event")


def with_old_months(queue: Queue) -> Queue:
    """Three old months and the present one, whose hours the bill has closed."""
    wait_out_the_hour()
    for ago in (5, 4, 3):
        queue.rows(MONTH.format(ago=ago))
        queue.rows(JOBS, ago=ago, jobs=10)
    queue.rows(JOBS, ago=0, jobs=1)
    close_hours(queue.engine)
    return queue


@pytest.fixture
def aged(queue: Queue) -> Queue:
    return with_old_months(queue)


def named(ago: int, queue: Queue) -> str:
    return str(
        queue.rows("SELECT to_char(date_trunc('month', now()) - make_interval(months => :ago), 'YYYY_MM')", ago=ago)[0][
            0
        ]
    )


def counts(queue: Queue) -> set[int]:
    return {queue.rows(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}


def long_ago(queue: Queue, months: int) -> datetime:
    moment: datetime = queue.rows(
        "SELECT date_trunc('month', now()) - make_interval(months => :months)", months=months
    )[0][0]
    return moment


def test_whole_months_go_and_the_rest_stays(aged: Queue) -> None:
    assert counts(aged) == {31}
    gone = history.prune(aged.engine, long_ago(aged, 3))
    assert [(month.name, month.jobs) for month in gone] == [(named(5, aged), 10), (named(4, aged), 10)]
    assert counts(aged) == {11}
    left = aged.rows("SELECT 1 FROM pg_class WHERE relname LIKE :name", name=f"%\\_{named(4, aged)}")
    assert left == []
    assert history.prune(aged.engine, long_ago(aged, 3)) == []


def test_a_month_with_a_job_that_is_open_or_ended_later_is_kept_whole(aged: Queue) -> None:
    month = long_ago(aged, 4)
    first = "(SELECT id FROM job WHERE enqueued_at {} :month ORDER BY id LIMIT 1)"
    aged.rows(f"UPDATE job SET state = 'queued', finished_at = NULL WHERE id = {first.format('>')}", month=month)
    aged.rows(f"UPDATE job SET finished_at = now() WHERE id = {first.format('<')}", month=month)
    assert [month.kept for month in history.months(aged.engine, long_ago(aged, 2))] == [1, 1, 0]
    assert [month.name for month in history.prune(aged.engine, long_ago(aged, 2))] == [named(3, aged)]
    assert counts(aged) == {21}


def test_a_job_that_has_run_again_since_the_count_is_not_deleted(aged: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator redrives a dead job of an old month, and it succeeds while the month is being deleted."""
    count, month = history.months, long_ago(aged, 4)
    first = "(SELECT id FROM job WHERE enqueued_at < :month ORDER BY id LIMIT 1)"

    def count_and_finish(engine: Engine, before: datetime) -> list[history.Month]:
        counted = count(engine, before)
        aged.rows(f"UPDATE job SET finished_at = now() WHERE id = {first}", month=month)
        return counted

    monkeypatch.setattr(history, "months", count_and_finish)
    assert [month.name for month in history.prune(aged.engine, long_ago(aged, 3))] == [named(4, aged)]
    left = aged.rows(
        "SELECT count(DISTINCT attempt.job_id) FROM job JOIN attempt ON job_id = id WHERE enqueued_at < :month",
        month=month,
    )
    assert left == [(1,)]


def test_an_interrupted_prune_is_finished_by_the_next(aged: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "PARENTS", ("attempt",))
    history.prune(aged.engine, long_ago(aged, 3))
    monkeypatch.undo()
    assert [month.jobs for month in history.prune(aged.engine, long_ago(aged, 3))] == [0, 0]
    assert counts(aged) == {11}


def test_the_command_counts_and_asks(aged: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THOTHY_DATABASE_URL", aged.settings.require_database_url())
    days = (datetime.now(UTC) - long_ago(aged, 3)).days + 1
    command = ["history", "prune", "--older-than", f"{days - 1}d"]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert named(5, aged).replace("_", "-") in refused.stdout
    monkeypatch.setattr(shell, "stdin_is_a_terminal", lambda: True)
    assert CliRunner().invoke(app, command, input="n\n").exit_code == 1
    assert counts(aged) == {31}
    done = CliRunner().invoke(app, [*command, "--yes", "--json"])
    assert [month["jobs"] for month in json.loads(done.stdout)["pruned"]] == [10, 10]
    assert counts(aged) == {11}


def test_the_command_says_when_each_month_goes(aged: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THOTHY_DATABASE_URL", aged.settings.require_database_url())
    monkeypatch.setenv("THOTHY_KEEP_HISTORY_DAYS", "365")
    shown = CliRunner().invoke(app, ["history", "show"])
    assert shown.exit_code == 0
    assert named(5, aged).replace("_", "-") in shown.stdout
    months = json.loads(CliRunner().invoke(app, ["history", "show", "--json"]).stdout)["months"]
    past = {month["name"]: month for month in months}
    end = long_ago(aged, 4) + timedelta(days=365)
    assert (past[named(5, aged)]["goes"], past[named(5, aged)]["jobs"]) == (end.date().isoformat(), 10)
    monkeypatch.setenv("THOTHY_KEEP_HISTORY_DAYS", "0")
    kept = json.loads(CliRunner().invoke(app, ["history", "show", "--json"]).stdout)["months"]
    assert {month["goes"] for month in kept} == {"never"}


def test_without_past_months_the_command_says_so(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THOTHY_DATABASE_URL", queue.settings.require_database_url())
    history.prune(queue.engine, datetime.now(UTC))
    shown = CliRunner().invoke(app, ["history", "show"])
    assert (shown.exit_code, shown.stdout) == (
        0, "There is no history of past months; the current month is never deleted.\n"
    )  # fmt: skip
