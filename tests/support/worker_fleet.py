"""`WorkerFleet`: a dispatcher, a reaper and worker processes over real servers, and what must hold afterwards."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

from tests.support.echo_kind import Echo
from tests.support.engine_rows import register_first
from tests.support.home import THOTHY
from tests.support.patience import PATIENCE
from tests.support.queue_bench import QUICK, Queue, eventually
from thothy_ai.engine.api import EngineStats
from thothy_ai.engine.serving.client import connect
from thothy_ai.queue.dispatcher import Dispatcher
from thothy_ai.queue.reaper import Reaper
from thothy_ai.settings import Settings

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "tests" / "support" / "worker_process.py"
PATIENT = {"lease_seconds": 1000, "dispatch_timeout_seconds": 1000}  # nothing is late, however slow the machine
KEY, URGENT_KEY, UNACKED = "thothy:jobs@first", "thothy:jobs@first:urgent", "thothy:unacked"


def environment(settings: Settings) -> dict[str, str]:
    chosen = {f"THOTHY_{name.upper()}": str(value) for name, value in QUICK.items()}
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("THOTHY_")},
        **chosen,
        "THOTHY_KINDS": "tests.support.echo_kind",
        "THOTHY_HOME": str(settings.home),
        "THOTHY_DATABASE_URL": settings.require_database_url(),
        "THOTHY_REDIS_URL": settings.require_redis_url(),
        "PYTHONPATH": str(ROOT),
    }


class WorkerFleet:
    """A dispatcher, a reaper and worker processes, with these changes to the queue's settings."""

    def __init__(self, queue: Queue, log: Path, stack: ExitStack, **changes: object) -> None:
        self.queue = queue
        self.log = log
        self._stack = stack
        self._changes = changes
        settings = queue.settings.model_copy(update=changes)
        for loop in (Dispatcher(settings), Reaper(settings)):
            thread = threading.Thread(target=loop.run)
            thread.start()
            stack.callback(thread.join, PATIENCE)
            stack.callback(loop.stop)

    def worker(self, seconds: float = 0.0, **changes: object) -> subprocess.Popen[bytes]:
        """A worker over a fake engine of its own, whose generations take so long; all of them have one name."""
        register_first(self.queue)
        return self._start([sys.executable, str(WORKER), str(seconds)], changes)

    def sharing_worker(self, engine_url: str, **changes: object) -> subprocess.Popen[bytes]:
        """A worker over the engine at this URL."""
        return self._start([*THOTHY, "worker"], changes | {"engine_url": engine_url})

    def null_engine(
        self, engine_url: str, seconds: float, rows: int | None = None, **changes: object
    ) -> subprocess.Popen[bytes]:
        """An engine process without a model, whose generations take so long; at most `rows` of them run at once."""
        limit = ["--max-rows", str(rows)] if rows else []
        command = [*THOTHY, "engine", "--null", "--null-latency", str(seconds), *limit]
        return self._start(command, changes | {"engine_url": engine_url})

    def process(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Another process of the service."""
        return self._start(command, {})

    def _start(self, command: list[str], changes: dict[str, object]) -> subprocess.Popen[bytes]:
        env = environment(self.queue.settings) | {
            f"THOTHY_{name.upper()}": str(value) for name, value in (self._changes | changes).items()
        }
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        self._stack.callback(self._end, process)
        return process

    def drained(self) -> None:
        eventually(lambda: not self.queue.open())

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)


def enqueue(queue: Queue, jobs: int) -> None:
    queue.producer.enqueue_many([Echo(text=f"ok {number}") for number in range(jobs)])


def check_each_once(queue: Queue, jobs: int) -> None:
    """Every job succeeded, and has exactly one artifact and one succeeded attempt."""
    assert queue.count("succeeded") == jobs
    assert queue.rows("SELECT count(*), count(DISTINCT job_id) FROM artifact WHERE verdict = 'accepted'") == [
        (jobs, jobs)
    ]
    assert queue.rows("SELECT count(*), count(DISTINCT job_id) FROM attempt WHERE outcome = 'succeeded'") == [
        (jobs, jobs)
    ]


def in_engine(url: str) -> tuple[int, int]:
    """How many requests run and wait in the engine at this address."""
    scheduler = asyncio.run(_stats(url)).scheduler
    return scheduler.running, scheduler.waiting


async def _stats(url: str) -> EngineStats:
    client = connect(url)
    await client.start()
    try:
        return await client.stats()
    finally:
        await client.close()
