"""The cost of a backlog: the enqueueing rate, and the dispatch rate and order with up to a million queued jobs.

python -m benchmarks.backlog            records the result; see also `benchmarks.flood`
python -m benchmarks.backlog --plans    only prints how Postgres runs the hot statements on a million jobs
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis
from sqlalchemy import Engine, text

from benchmarks.probe import Probe
from benchmarks.query_plans import record_plans
from benchmarks.results import record, table
from benchmarks.stand_in import StandIn
from thothy_ai.db.connect import make_engine
from thothy_ai.db.fragments import FRAGMENTS
from thothy_ai.embedded import EmbeddedStack
from thothy_ai.producer import Producer
from thothy_ai.queue.dispatcher import Dispatcher
from thothy_ai.settings import Settings

BACKLOGS = (0, 100_000, 1_000_000)
MEASURED_JOBS = 10_000
ENQUEUED, BATCH = 30_000, 1_000
TITLE = "Backlog, CPU"
# Ten siblings per source; a tenth of the jobs is urgent, a third has a deadline; enqueued over six hours.
FILL = """
    WITH made AS (
        INSERT INTO job (id, tenant, kind, priority, deadline, not_before, delayed, enqueued_at, source_key,
                         request_digest, max_attempts)
        SELECT uuidv7(), 'default', 'probe', CASE WHEN n % 10 = 0 THEN 5 ELSE 0 END,
               CASE WHEN n % 3 = 0 THEN now() + interval '1 day' + n % 1000 * interval '1 minute' END,
               now() + make_interval(secs => :delay), :delay > 60, now() - (:jobs - n) * interval '6 hours' / :jobs,
               md5((n / 10)::text), 'd', 3
        FROM generate_series(1, :jobs) AS n
        RETURNING id
    )
    INSERT INTO job_request (job_id, request) SELECT id, '{"text": "a backlog", "characters": 20}' FROM made
"""
PLANNED = """
    SELECT id FROM job
    WHERE state = 'queued' AND not_before <= now()
    ORDER BY {planned_order}
    LIMIT :jobs
""".format(**FRAGMENTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", action="store_true", help="only print the query plans")
    if parser.parse_args().plans:
        with servers() as (_, engine):
            fill(engine, max(BACKLOGS))
            record_plans(engine)
        return
    rows = [_enqueue_row(), *_dispatch_rows()]
    record(TITLE, "Queue", "python -m benchmarks.backlog", rows)
    print(table(("measurement", "result", "target"), rows))


@contextmanager
def servers() -> Iterator[tuple[Settings, Engine]]:
    """Postgres and Valkey as in the embedded stack, with durability, without any service process."""
    with tempfile.TemporaryDirectory(prefix="thothy-bench-") as home:
        Path(home).chmod(0o755)  # servers run as the user `nobody` must be able to traverse it
        settings = Settings.load(home=Path(home), kinds=("benchmarks.probe",), log_level="WARNING")
        with EmbeddedStack(settings, services=()) as stack:
            engine = make_engine(stack.settings, application="benchmark", pool_size=2)
            try:
                yield stack.settings, engine
            finally:
                engine.dispose()


def fill(engine: Engine, jobs: int, *, delay_seconds: float = 0) -> None:
    """Insert `jobs` queued jobs with one statement, with enqueueing times spread over six hours."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if jobs:
            connection.execute(text(FILL), {"jobs": jobs, "delay": delay_seconds})
        connection.execute(text("VACUUM ANALYZE job"))
        connection.execute(text("CHECKPOINT"))  # so that pending writes of the insertion are not measured


def _enqueue_row() -> tuple[str, str, str]:
    jobs = [Probe(text=f"Note {number} of a producer in a hurry. " * 10) for number in range(ENQUEUED)]
    with servers() as (settings, _), Producer(settings) as producer:
        producer.enqueue_many(jobs[:BATCH])
        began = time.perf_counter()
        for start in range(0, len(jobs), BATCH):
            producer.enqueue_many(jobs[start : start + BATCH])
        rate = len(jobs) / (time.perf_counter() - began)
    print(f"enqueue_many: {rate:,.0f} jobs/s", flush=True)
    return f"`enqueue_many`, {BATCH:,} jobs per call, one producer", f"{rate:,.0f} jobs/s", "at least 5,000"


def _dispatch_rows() -> Iterator[tuple[str, str, str]]:
    for backlog in BACKLOGS:
        with servers() as (settings, engine):
            fill(engine, backlog + MEASURED_JOBS)
            yield _dispatch_row(settings, engine, f"{backlog:,} further jobs queued")
    with servers() as (settings, engine):
        fill(engine, max(BACKLOGS), delay_seconds=86_400)
        fill(engine, MEASURED_JOBS)
        yield _dispatch_row(settings, engine, f"{max(BACKLOGS):,} delayed jobs queued")


def _dispatch_row(settings: Settings, engine: Engine, backlog: str) -> tuple[str, str, str]:
    with engine.connect() as connection:
        planned = list(connection.scalars(text(PLANNED), {"jobs": MEASURED_JOBS}))
    deepest, rate = 0, 0.0
    stand_in = StandIn(settings, engine)
    with Redis.from_url(settings.require_redis_url()) as redis, _dispatching(settings):
        began = time.perf_counter()
        for taken in stand_in.work(redis, MEASURED_JOBS):
            deepest = max(deepest, redis.llen(stand_in.key) + taken)
        rate = MEASURED_JOBS / (time.perf_counter() - began)
    if stand_in.taken[:MEASURED_JOBS] != planned:
        raise RuntimeError("jobs were dispatched out of planned order")
    measured = f"{rate:,.0f} jobs/s, in planned order, Redis list at most {deepest}"
    print(f"{MEASURED_JOBS:,} jobs dispatched, claimed and finished, {backlog}: {measured}", flush=True)
    return f"{MEASURED_JOBS:,} jobs dispatched, claimed, finished; {backlog}", measured, "at least 500 jobs/s"


@contextmanager
def _dispatching(settings: Settings) -> Iterator[None]:
    dispatcher = Dispatcher(settings)
    thread = threading.Thread(target=dispatcher.run)
    thread.start()
    try:
        yield
    finally:
        dispatcher.stop()
        thread.join()


if __name__ == "__main__":
    main()
