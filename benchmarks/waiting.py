"""What waiting for jobs costs: `python -m benchmarks.waiting`, on a stack of its own, with an engine without a model.

latency    from the transaction that ends a job to the return of `result()`: polled, and by notification
queries    per second, of 50 waiting clients while nothing ends
finish     one `worker/finish` of 500 jobs with its commit: as it was, with notifications, with webhooks per job
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from uuid import UUID

from sqlalchemy import Engine, TextClause, event, text

from benchmarks.stand_in import finish_row
from thothy_ai.db.connect import make_engine
from thothy_ai.db.statements import statement
from thothy_ai.embedded import EmbeddedStack
from thothy_ai.embedded.placement import Placement
from thothy_ai.jobs import Hook
from thothy_ai.producer import Job, Producer
from thothy_ai.settings import Settings

JOBS, CLIENTS, SECONDS, ROUNDS, BATCH = 100, 50, 20.0, 30, 500
ENGINE = Placement(arguments=("--null-latency", "2"))  # seconds
SOURCE = "Fermentation crocks sold out in March. Makers say that the waiting list is now nine weeks long."
NOTIFIED_FROM, NOTIFIED_TO = "), notified AS (", "GROUP BY part\n)"
RUN = text(
    "INSERT INTO job (id, tenant, kind, source_key, request_digest, max_attempts, state, attempt, worker, lease_until,"
    " started_at, batch_id) SELECT uuidv7(), 'default', 'hook', 's', 'd', 3, 'running', 1, 'w', now(), now(),"
    " CAST(:batch AS uuid) FROM generate_series(1, :jobs) RETURNING id"
)


def main() -> None:
    """Print a table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o755)
        settings = Settings.load(home=Path(home), worker_in_flight=CLIENTS)
        with EmbeddedStack(settings, null=True, engines=(ENGINE,)) as stack:
            modes = {"polled": stack.settings.model_copy(update={"database_pooler": "transaction"})}
            modes["notified"] = stack.settings
            for name, mode in modes.items():
                found = latencies(mode)
                print(f"latency {name:9} median {median(found) * 1000:6.1f} ms, p95 {found[94] * 1000:6.1f} ms")
        with EmbeddedStack(settings, services=()) as stack:
            for name, mode in (("polled", "transaction"), ("notified", "none")):
                rate = queries(stack.settings.model_copy(update={"database_pooler": mode}))
                print(f"queries {name:9} {rate:6.1f} per second of {CLIENTS} clients")
            for name, seconds in finishes(stack.settings).items():
                print(f"finish  {name:26} median {seconds * 1000:6.2f} ms of {BATCH} jobs")


def latencies(settings: Settings) -> list[float]:
    """Seconds from the end of a job to the return of `result`, sorted."""

    def wait(job: Job) -> float:
        with suppress(Exception):  # a rejected output is an end, too
            job.result()
        returned = datetime.now(UTC)
        return (returned - (job.refresh().finished_at or returned)).total_seconds()

    with Producer(settings) as producer, ThreadPoolExecutor(CLIENTS) as threads:
        jobs = producer.enqueue_many([Hook(source=f"{SOURCE} {number}") for number in range(JOBS)])
        return sorted(threads.map(wait, jobs))


def queries(settings: Settings) -> float:
    """Queries per second of clients whose jobs do not end, once their polls are as rare as they get."""
    with Producer(settings) as producer, ThreadPoolExecutor(CLIENTS) as threads:
        jobs = producer.enqueue_many([Hook(source=f"{SOURCE} {number}") for number in range(CLIENTS)])

        def wait(job: Job) -> None:
            with suppress(TimeoutError):
                job.result(2 * SECONDS)

        waiting = [threads.submit(wait, job) for job in jobs]
        time.sleep(SECONDS / 2)
        with counted(producer) as sent:
            time.sleep(SECONDS)
        for one in waiting:
            one.result()
        return len(sent) / SECONDS


@contextmanager
def counted(producer: Producer) -> Iterator[list[str]]:
    """The statements that the producer sends."""
    sent: list[str] = []

    def note(_: object, __: object, said: str, *___: object) -> None:
        sent.append(said)

    event.listen(producer._engine, "before_cursor_execute", note)
    yield sent
    event.remove(producer._engine, "before_cursor_execute", note)


def finishes(settings: Settings) -> dict[str, float]:
    """Median seconds of a finish, by variant; the variants take turns."""
    engine = make_engine(settings)
    now = statement("worker/finish")
    before = text(without_notifications(now.text))
    batch = UUID(int=1)
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO batch (id, tenant, url, notify, jobs) VALUES (:id, 'default', 'https://x', 'job', 1)"),
            {"id": batch},
        )
    variants: dict[str, Callable[[], float]] = {
        "as it was": lambda: finish(engine, before, None, trigger=False),
        "with notifications": lambda: finish(engine, now, None, trigger=True),
        "with a webhook per job": lambda: finish(engine, now, batch, trigger=True),
    }
    taken: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(ROUNDS):
        for name, variant in variants.items():
            taken[name].append(variant())
    engine.dispose()
    return {name: median(seconds) for name, seconds in taken.items()}


def without_notifications(sql: str) -> str:
    """The statement without its notifications."""
    start, end = sql.index(NOTIFIED_FROM), sql.index(NOTIFIED_TO) + len(NOTIFIED_TO)
    return sql[:start] + ")" + sql[end:].replace("WHERE (SELECT count(*) FROM notified) >= 0", "")


def finish(engine: Engine, sql: TextClause, batch: UUID | None, *, trigger: bool) -> float:
    """Seconds of one finish, with its commit."""
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE job {'ENABLE' if trigger else 'DISABLE'} TRIGGER notify_end"))
        ids = connection.scalars(RUN, {"jobs": BATCH, "batch": batch}).all()
    rows = [finish_row(job, 1, {"text": "x" * 400}, "x" * 500) for job in ids]
    given = {"rows": json.dumps(rows), "worker": "w"}
    with engine.connect() as connection:
        start = time.perf_counter()
        assert len(connection.execute(sql, given).all()) == BATCH
        connection.commit()
        return time.perf_counter() - start


if __name__ == "__main__":
    main()
