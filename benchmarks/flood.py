"""The whole stack under a producer that is a hundred times faster than the engine: which parts grow?

python -m benchmarks.flood 600      runs for 600 seconds; records the result
"""

from __future__ import annotations

import argparse
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
from benchmarks.queue_cpu import null_engine
from benchmarks.results import Table, record, table
from thothy_ai.db.connect import make_engine
from thothy_ai.embedded import EmbeddedStack
from thothy_ai.producer import Producer
from thothy_ai.queue.hints import count_waiting
from thothy_ai.settings import Settings

IN_FLIGHT = 16
LATENCY = 0.4  # seconds per answer, i.e. 40 jobs/s
OVERLOAD = 100  # rate of the producer relative to that of the engine
BATCH = 1_000
SAMPLES = 6
FIRST_SAMPLE_SECONDS = 10  # caches are warm by then
HEADER = ("second", "enqueued", "finished", "Redis list", "Redis, MB", "worker, MB", "engine, MB", "dispatcher, MB",
          "job tables, MB")  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """Counts and sizes at one moment. Sizes are in MB."""

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


def flood(seconds: float) -> list[Sample]:
    """Enqueue for `seconds` at `OVERLOAD` times the engine's rate."""
    with tempfile.TemporaryDirectory(prefix="thothy-bench-") as home:
        Path(home).chmod(0o755)
        settings = Settings.load(
            home=Path(home), kinds=("benchmarks.probe",), log_level="WARNING", worker_in_flight=IN_FLIGHT
        )
        with EmbeddedStack(settings, services=("reaper", "dispatcher", "worker")) as stack:
            engine = make_engine(stack.settings, application="benchmark", pool_size=1)
            with null_engine(stack, "--null-latency", str(LATENCY)) as process:
                pids = {name: pid for name, pid in stack.pids().items() if pid} | {"engine": process.pid}
                samples = list(_watch(stack.settings, engine, pids, seconds))
            engine.dispose()
    return samples


def _watch(settings: Settings, engine: Engine, pids: dict[str, int], seconds: float) -> Iterator[Sample]:
    with _producing(settings) as enqueued, Redis.from_url(settings.require_redis_url()) as redis:
        began = time.monotonic()
        for number in range(SAMPLES):
            due = FIRST_SAMPLE_SECONDS + (seconds - FIRST_SAMPLE_SECONDS) * number / (SAMPLES - 1)
            time.sleep(max(0.0, began + due - time.monotonic()))
            finished, size = _in_postgres(engine)
            sample = Sample(
                time.monotonic() - began, enqueued(), finished, sum(count_waiting(redis, settings)),
                redis.info("memory")["used_memory"] / 1e6, _memory(pids["worker"]), _memory(pids["engine"]),
                _memory(pids["dispatcher"]), size,
            )  # fmt: skip
            print(sample, flush=True)
            yield sample


@contextmanager
def _producing(settings: Settings) -> Iterator[Callable[[], int]]:
    """Run a thread that enqueues at a constant rate; yields a function that returns the jobs enqueued so far."""
    rate = OVERLOAD * IN_FLIGHT / LATENCY
    stopping, counted = threading.Event(), [0]

    def produce() -> None:
        jobs = [Probe(text=f"Note {number} of a flood.") for number in range(BATCH)]
        with Producer(settings) as producer:
            began = time.monotonic()
            while not stopping.wait(max(0.0, began + counted[0] / rate - time.monotonic())):
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
    """Resident memory of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.split("VmRSS:")[1].split()[0]) / 1e3


def main() -> None:
    """Run the flood, print and record it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float, help=f"how long to enqueue; at least {FIRST_SAMPLE_SECONDS}")
    seconds = parser.parse_args().seconds
    if not seconds >= FIRST_SAMPLE_SECONDS:
        parser.error(f"seconds must be at least {FIRST_SAMPLE_SECONDS}")
    samples = flood(seconds)
    first, last = samples[0], samples[-1]
    if not last.finished:
        parser.exit(1, f"{parser.prog}: no job was finished in {last.seconds:.0f} s\n")
    memory = ((name, getattr(first, name), getattr(last, name)) for name in ("redis", "worker", "engine", "dispatcher"))
    figures = [
        (
            "jobs per second, enqueued; finished",
            f"{last.enqueued / last.seconds:,.0f}; {last.finished / last.seconds:,.0f}",
        ),
        *(
            (f"{name}, MB at first; at last", f"{before:.1f}; {after:.1f}", "constant")
            for name, before, after in memory
        ),
    ]
    table_of_samples = Table("samples", HEADER, [sample.row() for sample in samples])
    record("A flood, CPU", "Queue", f"python -m benchmarks.flood {seconds:g}", figures, tables=[table_of_samples])
    print(table(HEADER, table_of_samples.rows))


if __name__ == "__main__":
    main()
