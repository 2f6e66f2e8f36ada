"""A producer that outruns the engine a hundred times: what grows? The whole stack runs, on an engine of a set pace.

python -m benchmarks.flood 600      for so many seconds; writes RESULTS.md
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from redis import Redis
from sqlalchemy import Engine, text

from benchmarks.probe import Probe
from benchmarks.results import table, write_section
from thothy_ai.db.connect import make_engine
from thothy_ai.embedded import EmbeddedStack
from thothy_ai.producer import Producer
from thothy_ai.settings import Settings

IN_FLIGHT = 16
LATENCY = 0.4  # seconds an answer takes: 40 jobs/s
TIMES = 100
BATCH = 1_000
LOOKS = 6
FIRST_LOOK_SECONDS = 10  # caches are warm by then


@dataclass(frozen=True)
class Look:
    """What stood where at one moment. Sizes in MB."""

    seconds: float
    enqueued: int
    finished: int
    listed: int
    redis: float
    worker: float
    engine: float
    dispatcher: float
    job_table: float

    def row(self) -> tuple[str, ...]:
        sizes = (f"{size:.1f}" for size in (self.redis, self.worker, self.engine, self.dispatcher, self.job_table))
        return f"{self.seconds:.0f}", f"{self.enqueued:,}", f"{self.finished:,}", f"{self.listed}", *sizes


def flood(seconds: float) -> str:
    """Enqueue for so long at `TIMES` the engine's pace; a table of what was seen meanwhile."""
    with tempfile.TemporaryDirectory(prefix="thothy-bench-") as home:
        Path(home).chmod(0o755)
        settings = Settings.load(
            home=Path(home), kinds=("benchmarks.probe",), log_level="WARNING", worker_in_flight=IN_FLIGHT
        )
        with EmbeddedStack(settings, services=("reaper", "dispatcher", "worker")) as stack:
            engine = make_engine(stack.settings, application="benchmark", pool_size=1)
            with _slow_engine(stack.settings.require_engine_url()) as engine_pid:
                pids = {name: pid for name, pid in stack.pids().items() if pid} | {"engine": engine_pid}
                looks = list(_watch(stack.settings, engine, pids, seconds))
            engine.dispose()
    header = ("second", "enqueued", "finished", "Redis list", "Redis, MB", "worker, MB", "engine, MB", "dispatcher, MB",
              "job tables, MB")  # fmt: skip
    rate = looks[-1].enqueued / looks[-1].seconds
    done = looks[-1].finished / looks[-1].seconds
    note = (
        f"A producer at {rate:,.0f} jobs/s, an engine that answers {IN_FLIGHT} jobs in {LATENCY} s, "
        f"{done:.0f} jobs/s finished: the producer is {rate / done:.0f} times faster. Wanted: Postgres grows, "
        "and nothing else."
    )
    return f"{note}\n\n{table(header, [look.row() for look in looks])}"


def _watch(settings: Settings, engine: Engine, pids: dict[str, int], seconds: float) -> Iterator[Look]:
    key = f"{settings.queue_prefix}{settings.queue_name}"
    with _producing(settings) as enqueued, Redis.from_url(settings.require_redis_url()) as redis:
        began = time.monotonic()
        for number in range(LOOKS):
            due = FIRST_LOOK_SECONDS + (seconds - FIRST_LOOK_SECONDS) * number / (LOOKS - 1)
            time.sleep(max(0.0, began + due - time.monotonic()))
            finished, size = _in_postgres(engine)
            look = Look(
                time.monotonic() - began, enqueued(), finished, redis.llen(key),
                redis.info("memory")["used_memory"] / 1e6, _memory(pids["worker"]), _memory(pids["engine"]),
                _memory(pids["dispatcher"]), size,
            )  # fmt: skip
            print(look, flush=True)
            yield look


@contextmanager
def _producing(settings: Settings) -> Iterator[Callable[[], int]]:
    """A thread that keeps the pace; yields how many jobs it has enqueued."""
    pace = TIMES * IN_FLIGHT / LATENCY
    stopping, counted = threading.Event(), [0]

    def produce() -> None:
        jobs = [Probe(text=f"Note {number} of a flood.") for number in range(BATCH)]
        with Producer(settings) as producer:
            began = time.monotonic()
            while not stopping.wait(max(0.0, began + counted[0] / pace - time.monotonic())):
                producer.enqueue_many(jobs)
                counted[0] += BATCH

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield lambda: counted[0]
    finally:
        stopping.set()
        thread.join()


def _in_postgres(engine: Engine) -> tuple[int, float]:
    with engine.connect() as connection:
        row = connection.execute(
            text(
                "SELECT count(*) AS jobs, (pg_total_relation_size('job') + pg_total_relation_size('job_request')) / 1e6"
                " AS size FROM job WHERE finished_at IS NOT NULL"
            )
        ).one()
    return row.jobs, float(row.size)


def _memory(pid: int) -> float:
    """Resident memory of a process, MB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.split("VmRSS:")[1].split()[0]) / 1e3


@contextmanager
def _slow_engine(url: str) -> Iterator[int]:
    command = [sys.executable, "-m", "thothy_ai.cli", "engine", "--null", "--null-latency", str(LATENCY), "--url", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            if process.stdout is None or "ready" not in process.stdout.readline():
                raise RuntimeError("the null engine did not start")
            yield process.pid
        finally:
            process.terminate()


def main() -> None:
    """Flood, and write it down."""
    seconds = float(sys.argv[1])
    body = flood(seconds)
    write_section("A flood, CPU", f"python -m benchmarks.flood {seconds:g}", body)
    print(body)


if __name__ == "__main__":
    main()
