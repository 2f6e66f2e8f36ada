"""The overhead of the queue: the same jobs through the queue and directly to the engine, and the queue's own rate on an
engine that answers immediately. Both use the embedded stack, with real servers and one worker.

    python -m benchmarks.queue_cpu           only the queue's own rate; needs no model
    python -m benchmarks.queue_cpu --crash   what one SIGKILL of an engine costs a drain; prints, and writes nothing
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine, text

from benchmarks.probe import KIND, Probe
from benchmarks.results import Row, record, table
from thothy_ai.bench.service.figures import quantile
from thothy_ai.db.connect import make_engine
from thothy_ai.demo.sources import load_sources
from thothy_ai.embedded import EmbeddedStack
from thothy_ai.embedded.process import free_port
from thothy_ai.embedded.stack import SERVICES
from thothy_ai.engine.api import GenerationRequest, Message, SamplingParams
from thothy_ai.engine.checkpoint.bundled import bundled_model_path
from thothy_ai.engine.serving.client import connect
from thothy_ai.jobs import Context
from thothy_ai.producer import Producer
from thothy_ai.settings import Settings

ROUNDS = 3
JOBS = 64
NULL_JOBS = 6_000
MAX_NOTE_LENGTH = 700
SERVERS_ONLY = ("reaper", "dispatcher", "worker")
PACED_RATE, PACED_SECONDS, BATCHES_PER_SECOND = 100, 30, 10  # the rate is in jobs per second
COMMIT = "thothy_worker_commit_seconds_bucket"
CRASH_JOBS, CRASH_ROWS, HANDED_OVER = 10_240, 256, 1_024  # forty times what a job takes
CRASH_LATENCY = 4.0  # seconds per job
CRASH_AT = 0.25  # of the jobs have ended


@dataclass(frozen=True)
class Overhead:
    """Median seconds for the same jobs both ways, and `share`: the median relative overhead of the rounds."""

    direct_seconds: float
    queue_seconds: float
    share: float


def overhead() -> Overhead:
    """Run `JOBS` jobs of mixed length on one resident engine, alternately directly and through the queue."""
    with _stack(bundled_model_path()) as (stack, producer, engine):
        url = stack.settings.require_engine_url()
        asyncio.run(_direct(url, _jobs("warm-up", 8)))
        _through_queue(producer, engine, _jobs("warm-up too", 8))
        times = []
        for number in range(ROUNDS):
            direct = asyncio.run(_direct(url, _jobs(f"{number}, directly", JOBS)))
            times.append((direct, _through_queue(producer, engine, _jobs(f"{number}, by queue", JOBS))))
            print("{} jobs: directly {:.1f} s, through the queue {:.1f} s".format(JOBS, *times[-1]), flush=True)
    return Overhead(
        statistics.median(direct for direct, _ in times),
        statistics.median(queued for _, queued in times),
        statistics.median(queued / direct - 1 for direct, queued in times),
    )


def jobs_per_second() -> float:
    """Jobs per second from the producer's call to the last commit, on an engine that answers immediately."""
    with _stack(None) as (stack, producer, engine), null_engine(stack):
        _through_queue(producer, engine, _jobs("warm-up", 500))
        return NULL_JOBS / _through_queue(producer, engine, _jobs("null", NULL_JOBS))


def commit_p99() -> float:
    """The 99th percentile, in seconds, from the engine's result to the committed artifact, at `PACED_RATE` jobs/s.

    Taken from the worker's histogram, with linear interpolation within a bucket.
    """
    with _stack(None) as (stack, producer, engine), null_engine(stack):
        _through_queue(producer, engine, _jobs("warm-up", 500))
        before = _commits(stack)
        _paced(producer)
        _through_queue(producer, engine, _jobs("last", 1))  # once it has finished, so have the paced jobs
        after = _commits(stack)
    return quantile({bound: after[bound] - before[bound] for bound in after}, 0.99)


def _paced(producer: Producer) -> None:
    batches = PACED_SECONDS * BATCHES_PER_SECOND
    jobs = _jobs("paced", batches * PACED_RATE // BATCHES_PER_SECOND)
    begin = time.monotonic()
    for number in range(batches):
        time.sleep(max(0.0, begin + number / BATCHES_PER_SECOND - time.monotonic()))
        producer.enqueue_many(jobs[number::batches])


def _commits(stack: EmbeddedStack) -> dict[float, float]:
    """The worker's cumulative histogram of commits: count by upper bound in seconds."""
    port = stack.settings.metrics_port + SERVICES.index("worker")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        families = text_string_to_metric_families(page.read().decode())
    samples = [sample for family in families for sample in family.samples if sample.name == COMMIT]
    return {float(sample.labels["le"]): sample.value for sample in samples}


def alone() -> tuple[str, str, list[Row]]:
    """The queue without a model: subject, area and figures."""
    rate, p99 = jobs_per_second(), commit_p99()
    rows = [
        (f"{NULL_JOBS:,} jobs, engine answers immediately, one worker", f"{rate:.0f} jobs/s", "at least 500"),
        (f"p99 from result to committed artifact, {PACED_RATE} jobs/s", f"{1000 * p99:.0f} ms", "under 100"),
    ]
    return "Queue without a model, CPU", "Queue", rows


@dataclass(frozen=True)
class CrashCost:
    """Seconds of a drain without and with one SIGKILL of its engine, which was away for `away` of them; `charged` jobs
    had been admitted, and the last of them ended `tail` seconds after the last other job.
    """

    calm: float
    crashed: float
    away: float
    charged: int
    tail: float

    @property
    def share(self) -> float:
        """What the crash cost besides the restart, relative to the drain."""
        return (self.crashed - self.away) / self.calm - 1


def crash_cost() -> CrashCost:
    """Drain `CRASH_JOBS` jobs twice, on an engine of `CRASH_ROWS` rows whose worker takes `HANDED_OVER` jobs."""
    arguments = ("--null-latency", str(CRASH_LATENCY), "--max-rows", str(CRASH_ROWS))
    with _stack(None, worker_in_flight=HANDED_OVER) as (stack, producer, engine):
        with null_engine(stack, *arguments):
            _through_queue(producer, engine, _jobs("warm-up", 2))
            calm = _through_queue(producer, engine, _jobs("calm", CRASH_JOBS))
        with ThreadPoolExecutor(1) as threads:
            drain = threads.submit(_through_queue, producer, engine, _jobs("crashed", CRASH_JOBS))
            with null_engine(stack, *arguments) as process:
                _until_finished(engine, 2 + CRASH_JOBS + int(CRASH_AT * CRASH_JOBS))
                process.kill()
                began = time.perf_counter()
            with null_engine(stack, *arguments):
                away = time.perf_counter() - began
                crashed = drain.result()
        with engine.connect() as connection:
            row = connection.execute(
                text(
                    "SELECT count(*) FILTER (WHERE engine_deaths > 0) AS charged, extract(epoch FROM"
                    " max(finished_at) FILTER (WHERE engine_deaths > 0) -"
                    " max(finished_at) FILTER (WHERE engine_deaths = 0))::float AS tail FROM job"
                )
            ).one()
    return CrashCost(calm, crashed, away, row.charged, row.tail or 0.0)


def _until_finished(engine: Engine, jobs: int) -> None:
    done = 0
    while done < jobs:
        time.sleep(0.05)
        with engine.connect() as connection:
            done = connection.execute(text("SELECT count(*) FROM job WHERE finished_at IS NOT NULL")).scalar_one()


@contextmanager
def _stack(model: Path | None, **chosen: int) -> Iterator[tuple[EmbeddedStack, Producer, Engine]]:
    with tempfile.TemporaryDirectory(prefix="thothy-bench-") as home:
        Path(home).chmod(0o755)  # servers run as the user `nobody` must be able to traverse it
        settings = Settings.load(
            home=Path(home), model=model, kinds=("benchmarks.probe",), log_level="WARNING", metrics_port=free_port()
        ).model_copy(update=chosen)
        services = {} if model else {"services": SERVERS_ONLY}
        with EmbeddedStack(settings, **services) as stack, Producer.from_settings(stack.settings) as producer:
            engine = make_engine(stack.settings, application="benchmark", pool_size=1)
            try:
                yield stack, producer, engine
            finally:
                engine.dispose()


@contextmanager
def null_engine(stack: EmbeddedStack, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    url = stack.settings.require_engine_url()
    command = [sys.executable, "-m", "thothy_ai.cli", "engine", "--null", "--url", url, *arguments]
    environment = os.environ | stack.settings.environment()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            if process.stdout is None or "ready" not in process.stdout.readline():
                raise RuntimeError("the null engine did not start")
            yield process
        finally:
            process.terminate()


def _jobs(mark: str, count: int) -> list[Probe]:
    """The same jobs for every `mark` except for their first words, so that no run hits prefixes cached by another."""
    draw = random.Random(5)
    sources = load_sources()
    jobs = []
    for number in range(count):
        words = sources[number % len(sources)].text.split()
        start = draw.randrange(len(words) - 40)
        excerpt = " ".join(words[start : start + draw.randint(30, 200)])
        jobs.append(Probe(text=f"Run {mark}, note {number}. {excerpt}", characters=draw.randint(60, MAX_NOTE_LENGTH)))
    return jobs


async def _direct(url: str, jobs: Sequence[Probe]) -> float:
    client = connect(url)
    await client.start()
    try:
        begin = time.perf_counter()
        generations = [await client.submit(_request(index, job)) for index, job in enumerate(jobs)]
        await asyncio.gather(*(generation.result() for generation in generations))
        return time.perf_counter() - begin
    finally:
        await client.close()


def _request(index: int, job: Probe) -> GenerationRequest:
    """The request that a worker would send for this job."""
    [call] = next(KIND.plan(job, Context()))
    return GenerationRequest(
        id=f"direct-{index}",
        messages=tuple(Message(*message) for message in call.messages),
        sampling=SamplingParams(max_tokens=call.sampling.max_tokens, temperature=call.sampling.temperature, seed=1),
        schema=json.dumps(call.schema),
        profile=KIND.name,
    )


def _through_queue(producer: Producer, engine: Engine, jobs: Sequence[Probe]) -> float:
    """Seconds by Postgres' clock from just before enqueueing to the finish of the last job."""
    with engine.connect() as connection:
        began = connection.scalar(text("SELECT clock_timestamp()"))
    producer.enqueue_many(jobs)
    while True:
        with engine.connect() as connection:
            done = connection.execute(
                text(
                    "SELECT count(*) FILTER (WHERE finished_at IS NULL) AS open,"
                    " count(*) FILTER (WHERE state NOT IN ('succeeded', 'queued', 'dispatched', 'running')) AS failed,"
                    " extract(epoch FROM max(finished_at) - :began)::float AS seconds"
                    " FROM job WHERE enqueued_at >= :began"
                ),
                {"began": began},
            ).one()
        if done.failed:
            raise RuntimeError(f"{done.failed} jobs failed")
        if not done.open:
            return float(done.seconds)
        time.sleep(0.2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crash", action="store_true", help="only what one SIGKILL of an engine costs a drain")
    if parser.parse_args().crash:
        cost = crash_cost()
        print(f"{cost}\n{cost.share:.1%} of the drain, besides the restart")
        figures = [
            ("share of the drain, besides the restart", f"{cost.share:.1%}", "5 %"),
            ("jobs charged", f"{cost.charged:,}"),
        ]
        record("Crash of an engine during a drain", "Queue", "python -m benchmarks.queue_cpu --crash", figures)
    else:
        subject, area, rows = alone()
        record(subject, area, "python -m benchmarks.queue_cpu", rows)
        print(table(("measurement", "result", "target"), rows))
