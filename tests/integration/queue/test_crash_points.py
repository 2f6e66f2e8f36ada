"""Processes that die at named places, and what is true once others have taken over: each job ends exactly once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis import Redis
from sqlalchemy import Engine, inspect, text

from tests.support.engine_rows import register_first
from tests.support.next_revision import next_revision
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, eventually, running
from tests.support.worker_fleet import KEY, WorkerFleet, check_each_once, enqueue, environment
from thothy_ai.crash_points import EXIT_CODE
from thothy_ai.db.connect import make_engine
from thothy_ai.db.migration import migrate
from thothy_ai.db.schema import check_schema
from thothy_ai.queue.reaper import Reaper
from thothy_ai.settings import Settings

JOBS = 40
FILLED = f"""
INSERT INTO job (id, tenant, kind, source_key, request_digest, max_attempts)
SELECT uuidv7(), 't', 'echo', 's', 'd', 3 FROM generate_series(1, {JOBS})
"""
# What the dispatcher reads by, whatever it is called.
PLANNED = "SELECT indexrelid FROM pg_index WHERE indisvalid AND indexrelid::regclass::text LIKE 'ix\\_job\\_queued%'"
CLI = (sys.executable, "-m", "thothy_ai.cli")


@pytest.fixture
def cast(queue: Queue, tmp_path: Path) -> Iterator[Cast]:
    log = tmp_path / "doomed.log"
    with ExitStack() as stack:
        yield Cast(queue, log, stack)
    print(log.read_text() if log.exists() else "no log")  # noqa: T201 - shown when the test failed


class Cast:
    """Processes that will die, over a queue."""

    def __init__(self, queue: Queue, log: Path, stack: ExitStack) -> None:
        self.queue = queue
        self._log = log
        self._stack = stack

    def doomed(self, service: str, place: str) -> subprocess.Popen[bytes]:
        """A dispatcher or a reaper that dies at that place."""
        env = environment(self.queue.settings) | {"THOTHY_CRASH_POINT": place}
        with self._log.open("ab") as log:
            process = subprocess.Popen([*CLI, service], env=env, stdout=log, stderr=log)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process


def attempts(queue: Queue, outcome: str) -> int:
    return int(queue.rows("SELECT count(*) FROM attempt WHERE outcome = :outcome", outcome=outcome)[0][0])


def cut_off(queue: Queue) -> int:
    """Jobs that were claimed and have no output; whether the reaper has taken them back already does not matter."""
    return int(queue.rows("SELECT count(*) FROM job WHERE attempt > 0 AND state <> 'succeeded'")[0][0])


@pytest.mark.parametrize("place", ["after_claim", "after_engine", "after_engine:20"])
def test_a_worker_that_dies_before_its_commit_leaves_jobs_to_run_again(
    queue: Queue, fleet: WorkerFleet, place: str
) -> None:
    enqueue(queue, JOBS)
    assert fleet.worker(0.02, crash_point=place).wait(PATIENCE) == EXIT_CODE
    running = cut_off(queue)
    assert running > 0
    fleet.worker(lease_seconds=1000)
    fleet.drained()
    check_each_once(queue, JOBS)
    assert attempts(queue, "lost") == running
    assert queue.rows("SELECT max(failures) FROM job") == [(1,)]


def test_a_worker_that_dies_between_commit_and_acknowledgement_leaves_nothing_to_do_again(
    queue: Queue, fleet: WorkerFleet
) -> None:
    enqueue(queue, JOBS)
    assert fleet.worker(crash_point="after_commit").wait(PATIENCE) == EXIT_CODE
    committed, running = queue.count("succeeded"), cut_off(queue)
    assert committed > 0
    fleet.worker(lease_seconds=1000)
    fleet.drained()
    check_each_once(queue, JOBS)
    assert attempts(queue, "lost") == running  # nothing that was committed ran again
    assert queue.rows("SELECT count(*) FROM attempt") == [(JOBS + running,)]


@pytest.mark.parametrize(("place", "in_redis"), [("mid_dispatch", 0), ("after_publish", JOBS)])
def test_a_dispatcher_that_dies_amid_a_dispatch_loses_no_job(
    queue: Queue, cast: Cast, tmp_path: Path, place: str, in_redis: int
) -> None:
    enqueue(queue, JOBS)
    register_first(queue)
    assert cast.doomed("dispatcher", place).wait(PATIENCE) == EXIT_CODE
    assert queue.count("dispatched") == JOBS
    with Redis.from_url(queue.settings.require_redis_url()) as redis:
        assert redis.llen(KEY) == in_redis
    with ExitStack() as stack:
        fleet = WorkerFleet(queue, tmp_path / "workers.log", stack)
        fleet.worker()
        fleet.drained()
    check_each_once(queue, JOBS)
    [(republished,)] = queue.rows("SELECT count(DISTINCT job_id) FROM job_event WHERE event = 'republished'")
    assert republished >= JOBS - in_redis


@pytest.mark.parametrize("rule", [1, 2, 7])
def test_a_reaper_that_dies_between_two_rules_is_replaced_by_one_that_does_the_rest(
    queue: Queue, cast: Cast, tmp_path: Path, rule: int
) -> None:
    """Three jobs: one with an expired lease, one with a lost message, one past its deadline.

    While nothing dispatches, one rule applies to each job, once: however slow the machine, there is one event of each.
    Once jobs are dispatched again, the message of a worker that is slow to claim may rightly be published again; its
    dispatch number fences the first. From then on the invariant is that each job ends exactly once.
    """
    queue.enqueue("one", "two", "three")
    queue.dispatch()
    queue.rows(
        "UPDATE job SET state = 'running', attempt = 1, worker = 'gone', started_at = now(),"
        " lease_until = now() - interval '1 s' WHERE id = (SELECT min(id::text)::uuid FROM job)"
    )
    queue.rows("UPDATE job SET deadline = now() - interval '1 s' WHERE id = (SELECT max(id::text)::uuid FROM job)")
    assert cast.doomed("reaper", f"mid_reap:{rule}").wait(PATIENCE) == EXIT_CODE
    with running(Reaper(queue.settings)):
        eventually(lambda: queue.count("queued") == 2 and queue.count("expired") == 1)
    assert queue.rows("SELECT event, count(*) FROM job_event GROUP BY event ORDER BY event") == [
        ("expired", 1),
        ("lost", 1),
        ("republished", 1),
    ]
    with ExitStack() as stack:
        fleet = WorkerFleet(queue, tmp_path / "workers.log", stack)
        fleet.worker()
        fleet.drained()
    assert queue.rows("SELECT state, count(*) FROM job GROUP BY state ORDER BY state") == [
        ("expired", 1),
        ("succeeded", 2),
    ]
    check_each_once(queue, 2)


@pytest.mark.parametrize(("place", "tables"), [("mid_migration", 0), ("before_partitions", 1)])
def test_a_migration_that_dies_can_be_run_again(
    clean_environment: None, empty_database: str, tmp_path: Path, place: str, tables: int
) -> None:
    settings = Settings.load(home=tmp_path, database_url=empty_database)
    _migrate_and_die(settings, place, *CLI, "migrate")
    engine = make_engine(settings)
    try:
        eventually(lambda: not _sessions(engine))
        assert ("job" in inspect(engine).get_table_names()) is bool(tables)
        assert migrate(settings) == check_schema(settings)
        assert any(name.startswith("attempt_2") for name in inspect(engine).get_table_names())
    finally:
        engine.dispose()


@pytest.mark.parametrize("place", ["mid_migration", "mid_replace"])
def test_a_migration_that_dies_on_a_filled_database_leaves_an_index_to_dispatch_by(
    clean_environment: None, empty_database: str, tmp_path: Path, place: str
) -> None:
    """And what it had built is used: the next one only gives it its name."""
    settings = Settings.load(home=tmp_path, database_url=empty_database)
    migrate(settings)
    engine = make_engine(settings)
    try:
        with engine.begin() as connection:
            connection.execute(text(FILLED))
        _migrate_and_die(settings, place, sys.executable, "-m", "tests.support.next_revision", str(tmp_path / "died"))
        eventually(lambda: not _sessions(engine))
        with engine.connect() as connection:
            built = set(connection.scalars(text(PLANNED)))
        with next_revision(tmp_path / "next"):
            assert migrate(settings) == check_schema(settings)
        with engine.connect() as connection:
            after = set(connection.scalars(text(PLANNED)))
            assert connection.scalar(text("SELECT count(*) FROM job WHERE NOT delayed")) == JOBS
        assert len(built) == len(after) == 2  # of jobs without a model, and of those with one
        assert (built == after) is (place == "mid_replace")
    finally:
        engine.dispose()


def _migrate_and_die(settings: Settings, place: str, *command: str) -> None:
    env = settings.environment() | {"THOTHY_CRASH_POINT": place}
    died = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert died.returncode == EXIT_CODE, died.stderr


def _sessions(engine: Engine) -> bool:
    with engine.connect() as connection:
        return bool(
            connection.scalar(text("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'thothy-migrate'"))
        )


def test_an_unknown_crash_point_is_refused(clean_environment: None) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import thothy_ai.crash_points"],
        env={"THOTHY_CRASH_POINT": "mid_air"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "mid_air" in done.stderr
