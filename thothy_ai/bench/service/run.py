"""`thothy bench service`: sends the same jobs through the whole service and straight to its engine, in one run.

The service is an embedded stack in a temporary home. Its one engine process serves four drains of the same jobs:

    bare engine, first     compiles the schemas, learns the lengths of outputs, and computes most masks
    bare engine, before
    service
    bare engine, after

Each drain has other seeds and thus other texts, and its own tenant, whose prefix cache is cold. Later drains can be
faster, since masks are remembered and memory has been allocated. Therefore, the service is compared with the mean of
the two drains around it. Jobs have one attempt, and end after the first calls of their plans: validators accept nothing
that random weights write, and retries and repairs would distort the time.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from thothy_ai.bench.kinds import engine_folder
from thothy_ai.bench.measure import BenchReport
from thothy_ai.bench.options import JOBS_ON_A_CPU, BenchOptions
from thothy_ai.bench.progress import Progress, counted
from thothy_ai.bench.requests import JOBS, Backlog
from thothy_ai.bench.service.backlog import as_requests, make_jobs
from thothy_ai.bench.service.figures import QueueTimes, Sample, ServiceRun, service_figures
from thothy_ai.bench.service.records import Records
from thothy_ai.db.connect import make_engine
from thothy_ai.demo import first_call
from thothy_ai.demo.first_call import FirstCall
from thothy_ai.embedded import EmbeddedStack
from thothy_ai.embedded.process import Process, Program, free_ports, service_argv
from thothy_ai.embedded.readiness import ENGINE_READY_SECONDS, engine_listens
from thothy_ai.embedded.stack import SERVICES
from thothy_ai.embedded.supervisor import Patience
from thothy_ai.engine.api import GenerationRequest
from thothy_ai.engine.api.options import Command, EngineOptions, options_of
from thothy_ai.engine.serving.client import EngineClient, connect
from thothy_ai.errors import ServiceStartError
from thothy_ai.jobs import Request
from thothy_ai.producer import EnqueueOptions, Producer
from thothy_ai.settings import PREFIX, Settings

IN_FLIGHT = 1_024  # per worker, as in deploy/compose.gpu.yaml
WARM_UP_JOBS, WARM_UP_JOBS_ON_A_CPU = 64, 2
SAMPLE_SECONDS = 0.1
OTHERS = tuple(name for name in SERVICES if name != "engine")
ONE_ATTEMPT = EnqueueOptions(max_attempts=1)


@dataclass(frozen=True, slots=True)
class Service:
    """A running stack with its engine, a producer and the stack's records."""

    settings: Settings
    producer: Producer
    records: Records
    stack: EmbeddedStack
    engine: Process

    def check(self) -> None:
        """Raise `ServiceStartError` if a process has ended, since the jobs would never end."""
        if not self.engine.alive:
            raise ServiceStartError(self.engine.end_line())
        self.stack.wait(0)


def measure_service(options: BenchOptions, progress: Progress) -> BenchReport:
    """Measure according to the options. Raises `ThothyError`, `EngineError`."""
    with engine_folder(options) as engine, service(engine, progress) as running:
        return asyncio.run(_measure(options, running, progress))


@contextmanager
def service(engine: EngineOptions, progress: Progress) -> Iterator[Service]:
    """Postgres, Valkey, reaper, dispatcher, a worker and an engine process in a temporary home."""
    with ExitStack() as undo:
        home = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="thothy-bench-")))
        home.chmod(0o755)  # servers run as the user `nobody`, who must be able to traverse it
        settings = Settings.load(
            home=home, log_level="WARNING", metrics_port=free_ports(len(SERVICES)), tenant="service"
        )
        chosen = "worker_in_flight" in settings.model_fields_set
        in_flight = settings.worker_in_flight if chosen else IN_FLIGHT
        settings = settings.model_copy(
            update={"kinds": (*settings.kinds, first_call.MODULE), "worker_in_flight": in_flight}
        )
        stack = EmbeddedStack(settings, services=OTHERS, patience=Patience(failures=1))  # without restarts
        progress.say(f"Starting the service in {home}")
        undo.enter_context(stack)
        progress.say(f"Loading {engine.model.resolve().name if engine.model else 'nothing'}")
        url = stack.settings.require_engine_url()
        process = Process(
            Program(
                name="engine",
                argv=service_argv("engine", "--url", url, *_flags(engine)),
                env=stack.settings.environment() | {f"{PREFIX}METRICS_PORT": "0"},
                log=home / "logs" / "engine.log",
                ready=lambda: engine_listens(url),
                ready_seconds=ENGINE_READY_SECONDS,
            )
        )
        undo.callback(process.stop)
        process.start()
        database = make_engine(stack.settings, application="benchmark", pool_size=1)
        undo.callback(database.dispose)
        producer = undo.enter_context(Producer.from_settings(stack.settings))
        yield Service(stack.settings, producer, Records(stack.settings, database), stack, process)


def _flags(engine: EngineOptions) -> list[str]:
    """The flags of `thothy engine` that differ from its defaults."""
    flags: list[str] = []
    for declared in options_of(Command.BENCH):
        value = getattr(engine, declared.name)
        if value == declared.default:
            continue
        if declared.kind is bool:
            flags.append(declared.flag if value else str(declared.negation))
        else:
            flags += [declared.flag, str(value)]
    return flags


async def _measure(options: BenchOptions, running: Service, progress: Progress) -> BenchReport:
    client = connect(running.settings.require_engine_url(), running.settings.reveal_engine_token())
    await client.start()
    try:
        info = await client.info()
        on_gpu = info.device.startswith("cuda")
        measured = Backlog(options.jobs or (JOBS if on_gpu else JOBS_ON_A_CPU), options.kind, options.seed)
        # Warm up with other jobs, straight to the engine and through the service; they are not timed.
        warm_up = Backlog(WARM_UP_JOBS if on_gpu else WARM_UP_JOBS_ON_A_CPU, options.kind, seed=1_000_003)
        jobs, others = ([FirstCall.of(job) for job in make_jobs(backlog)] for backlog in (measured, warm_up))
        plain = [replace(request, schema=None) for request in as_requests(others, engine=info)]
        await _bare(client, plain, "warm-up, bare engine", progress)
        await _through_service(client, running, others, progress, "warm-up, service")

        async def bare(name: str, turn: int) -> ServiceRun:
            seeds = range(turn * len(jobs), (turn + 1) * len(jobs))
            return await _bare(client, as_requests(jobs, seeds, info), f"bare engine, {name}", progress)

        first, before = await bare("first", 0), await bare("before", 1)
        by_service, times = await _through_service(client, running, jobs, progress)
        after = await bare("after", 2)
    finally:
        await client.close()
    progress.clear()
    first, before, by_service, after = (replace(run, jobs=len(jobs)) for run in (first, before, by_service, after))
    unit = "GPU-hour" if on_gpu else "compute-hour"
    return BenchReport(
        f"Service: {info.model} {info.dtype}; {len(jobs):,} jobs of {options.kind or 'the four kinds'}",
        f"{info.device}, one worker with up to {running.settings.worker_in_flight:,} jobs in flight",
        tuple(service_figures(first, before, by_service, after, times, unit)),
    )


async def _bare(
    client: EngineClient, requests: Sequence[GenerationRequest], name: str, progress: Progress
) -> ServiceRun:
    """Send all requests at once over the socket, under this run's own tenant."""
    progress.say(f"Draining {counted(len(requests), 'job')}: {name}")
    salted = [replace(request, id=f"{name}-{index}", salt=name) for index, request in enumerate(requests)]

    async def drain(_: Callable[[], float]) -> float:
        began = time.perf_counter()
        generations = [await client.submit(request) for request in salted]
        await asyncio.gather(*(generation.result() for generation in generations))
        return time.perf_counter() - began

    return await _sampled(client, name, len(requests), drain, progress)


async def _through_service(
    client: EngineClient, running: Service, jobs: Sequence[Request], progress: Progress, name: str = "service"
) -> tuple[ServiceRun, QueueTimes]:
    """Enqueue all jobs at once, timed from the producer's call to the last commit."""
    progress.say(f"Draining {counted(len(jobs), 'job')}: {name}")
    records, requests = running.records, len(as_requests(jobs, engine=await client.info()))
    before, began = await asyncio.to_thread(records.readings), await asyncio.to_thread(records.now)
    enqueued: list[float] = []

    async def drain(elapsed: Callable[[], float]) -> float:
        await asyncio.to_thread(running.producer.enqueue_many, [(job, ONE_ATTEMPT) for job in jobs])
        enqueued.append(elapsed())
        while True:
            seconds = await asyncio.to_thread(records.seconds, began)
            if seconds is not None:
                return seconds
            running.check()
            await asyncio.sleep(SAMPLE_SECONDS)

    run = await _sampled(client, name, requests, drain, progress)
    return run, await asyncio.to_thread(records.times, began, enqueued[0], before)


async def _sampled(
    client: EngineClient,
    name: str,
    requests: int,
    drain: Callable[[Callable[[], float]], Awaitable[float]],
    progress: Progress,
) -> ServiceRun:
    """Run the drain, and sample the engine's counters before, repeatedly during, and after it."""
    samples = [Sample(0.0, await client.stats())]
    began = time.perf_counter()

    def elapsed() -> float:
        return time.perf_counter() - began

    async def sample() -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            stats = await client.stats()
            samples.append(Sample(elapsed(), stats))
            ended = stats.core.requests_finished - samples[0].stats.core.requests_finished
            progress.update(f"{ended:,} of {counted(requests, 'generation')} done after {elapsed():.0f} s")

    sampling = asyncio.create_task(sample())
    try:
        seconds = await drain(elapsed)
    finally:
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)
    samples.append(Sample(elapsed(), await client.stats()))
    return ServiceRun(name, seconds, requests, requests, tuple(samples))
