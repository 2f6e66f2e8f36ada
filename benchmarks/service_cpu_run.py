"""One measurement of `benchmarks.service_cpu`, of whatever tree PYTHONPATH names: prints JSON.

Standard library apart, it uses only what trees have had for long: the embedded stack with a null engine, the producer,
and the kind `benchmarks.probe`.

    PYTHONPATH=TREE python -P FILE JOBS LATENCY ROWS
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from redis import Redis
from sqlalchemy import Engine, TextClause, text

from benchmarks.probe import Probe
from thothy_ai.db.connect import make_engine
from thothy_ai.embedded import EmbeddedStack
from thothy_ai.embedded.placement import Placement
from thothy_ai.embedded.process import free_ports
from thothy_ai.embedded.stack import SERVICES
from thothy_ai.producer import Producer
from thothy_ai.settings import Settings

WARM_UP_JOBS = 256
POLL_SECONDS = 0.25
OPEN = text("SELECT count(*) FROM job WHERE finished_at IS NULL")
SUCCEEDED = text("SELECT count(*) FROM job WHERE state = 'succeeded'")
SECONDS = text("SELECT extract(epoch FROM max(finished_at) - :began)::float FROM job")
NOW = text("SELECT clock_timestamp()")
TRANSACTIONS = text("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()")
WAL_RECORDS, WAL_BYTES = text("SELECT wal_records FROM pg_stat_wal"), text("SELECT wal_bytes FROM pg_stat_wal")
STATISTICS_SECONDS = 1.5  # sessions report what they did once a second
PARTS = {b"judge_process": "judges", b"registrar": "registrar"}  # processes that are started by others, by module
TICKS = os.sysconf("SC_CLK_TCK")


def measure(jobs: int, latency: float, rows: int) -> dict[str, object]:
    """Seconds by Postgres' clock, and processor seconds of each part; the worker has at most `rows` jobs in flight."""
    with tempfile.TemporaryDirectory(prefix="thothy-bench-") as folder:
        home = Path(folder)
        home.chmod(0o755)  # servers that run as the user `nobody` must be able to traverse it
        settings = Settings.load(
            home=home,
            kinds=("benchmarks.probe",),
            log_level="WARNING",
            metrics_port=free_ports(len(SERVICES)),
            worker_in_flight=rows,
        )
        engine = Placement(arguments=("--null-latency", str(latency)))
        with (
            EmbeddedStack(settings, null=True, engines=(engine,)) as stack,
            Producer.from_settings(stack.settings) as producer,
        ):
            database = make_engine(stack.settings, application="benchmark", pool_size=1)
            try:
                _drain(producer, database, _jobs("warm-up", WARM_UP_JOBS))
                counts, used = _counts(stack, database), _cpu(stack)
                seconds = _drain(producer, database, _jobs("measured", jobs))
                used = Counter({name: spent - used[name] for name, spent in _cpu(stack).items()})
                counts = {name: value - counts[name] for name, value in _counts(stack, database).items()}
                succeeded = int(_scalar(database, SUCCEEDED)) - WARM_UP_JOBS
            finally:
                database.dispose()
        return {"seconds": seconds, "cpu": dict(used), "counts": counts, "succeeded": succeeded}


def _jobs(mark: str, count: int) -> list[Probe]:
    words = ("the school has built a new hall for its library since spring " * 12).split()
    return [
        Probe(text=f"{mark} {number}: {' '.join(words[number % 40 : number % 40 + 80])}", characters=200 + number % 400)
        for number in range(count)
    ]


def _drain(producer: Producer, database: Engine, jobs: list[Probe]) -> float:
    with database.connect() as connection:
        began = connection.scalar(NOW)
    producer.enqueue_many(jobs)
    while _scalar(database, OPEN):
        time.sleep(POLL_SECONDS)
    with database.connect() as connection:
        return float(connection.scalar(SECONDS, {"began": began}) or 0.0)


def _scalar(database: Engine, statement: TextClause) -> float:
    with database.connect() as connection:
        return float(connection.scalar(statement) or 0)


def _counts(stack: EmbeddedStack, database: Engine) -> dict[str, float]:
    """What Postgres and Valkey have done so far: unlike time, the same on any machine."""
    time.sleep(STATISTICS_SECONDS)
    with Redis.from_url(stack.valkey.url) as valkey:
        return {
            "transactions": _scalar(database, TRANSACTIONS),
            "WAL records": _scalar(database, WAL_RECORDS),
            "WAL kB": _scalar(database, WAL_BYTES) / 1e3,
            "Valkey commands": float(valkey.info("stats")["total_commands_processed"]),
        }


def _cpu(stack: EmbeddedStack) -> Counter[str]:
    """Processor seconds so far of each part with its children, those that have ended included."""
    roots = {pid: name for name, pid in stack.pids().items() if pid} | {os.getpid(): "producer"}
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(entry)):
            pid = int(entry.name)
            parents[pid], spent[pid] = int(fields[1]), sum(map(int, fields[11:15])) / TICKS
    found: Counter[str] = Counter()
    for pid, seconds in spent.items():
        if name := _part(pid, parents, roots):
            found[name] += seconds
    return found


def _stat(folder: Path) -> list[str]:
    """The fields of /proc/PID/stat after the program's name; none of a process that has ended."""
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _part(pid: int, parents: dict[int, int], roots: dict[int, str]) -> str | None:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    while pid and pid not in roots:
        pid = parents.get(pid, 0)
    if not pid:
        return None
    return next((name for module, name in PARTS.items() if module in command), roots[pid])


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=int)
    parser.add_argument("latency", type=float, help="seconds per request of the null engine")
    parser.add_argument("rows", type=int, help="requests that it runs at once")
    chosen = parser.parse_args()
    json.dump(measure(chosen.jobs, chosen.latency, chosen.rows), sys.stdout)


if __name__ == "__main__":
    main()
