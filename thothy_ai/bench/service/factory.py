"""`thothy bench factory`: drains the same mixed jobs through several engines, each behind its own whole service.

A service in a temporary home claims, runs, validates and records the jobs, as in production: prompts, schemas,
sampling, early stops and validators are the kinds' own. The engines must already be running, and are used one after the
other. Our engines listen at a socket; others are servers over HTTP. Seeds differ, since they come from the jobs' ids.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from thothy_ai.admin.report.bill import HOUR
from thothy_ai.admin.report.drain_report import DrainReport, drain_report
from thothy_ai.bench.progress import Progress, counted
from thothy_ai.bench.service.records import Records
from thothy_ai.db.connect import make_engine
from thothy_ai.embedded import EmbeddedStack
from thothy_ai.embedded.endpoint import Endpoint
from thothy_ai.embedded.placement import Placement
from thothy_ai.embedded.stack import SERVICES
from thothy_ai.engine.api import EngineInfo
from thothy_ai.engine.api.errors import EngineLostError
from thothy_ai.foreign import DeclaredEngine, connect, declared_by, is_foreign
from thothy_ai.jobs import Request
from thothy_ai.producer import EnqueueOptions, Producer
from thothy_ai.settings import Settings
from thothy_ai.worker.registration.served import record_server

LEARN_SECONDS = 300.0  # to connect to an engine, and to find out what a server over HTTP can do
LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Contender:
    """An engine, and what is declared about it. `price` is per GPU-hour. `gpus` None: the engine's own number, or 1."""

    url: str
    token: str | None = None
    model: str | None = None
    gpus: int | None = None
    price: float | None = None


@dataclass(frozen=True, slots=True)
class FactoryRun:
    """One engine's drain. Jobs that did not end within the time limit are open in the report."""

    contender: Contender
    info: EngineInfo
    gpus: int
    seconds: float
    report: DrainReport

    @property
    def gpu_hours(self) -> float:
        return self.seconds * self.gpus / HOUR

    def per_gpu_hour(self, number: int) -> float:
        return number / self.gpu_hours

    @property
    def cost_per_artifact(self) -> float | None:
        accepted = self.report.total.with_artifact
        return self.contender.price * self.gpu_hours / accepted if self.contender.price and accepted else None

    def to_json(self) -> dict[str, Any]:
        total = self.report.total
        return {
            "engine": self.contender.url,
            "model": self.info.model,
            "device": self.info.device,
            "gpus": self.gpus,
            "declared": self.info.declared_gpus > 0,
            "drain_seconds": self.seconds,
            "jobs": total.jobs.total(),
            "open": total.open,
            "jobs_per_gpu_hour": self.per_gpu_hour(total.finished),
            "failure_rate": total.failure_rate,
            "form_yield": total.form_yield,
            "clean_yield": total.clean_yield,
            "accepted_per_gpu_hour": self.per_gpu_hour(total.with_artifact),
            "price_per_gpu_hour": self.contender.price,
            "cost_per_artifact": self.cost_per_artifact,
            "report": self.report.to_json(),
        }


def measure_factory(
    contenders: Sequence[Contender],
    jobs: Sequence[Request],
    warm_up: Sequence[Request],
    progress: Progress,
    *,
    attempts: int = 1,
    limit_seconds: float = 3600.0,
) -> list[FactoryRun]:
    """Drain the jobs through each engine in turn. Raises `ThothyError`, `EngineError`."""
    runs = []
    options = EnqueueOptions(max_attempts=attempts)
    for contender in contenders:
        progress.say(f"Starting a service for {contender.url}")
        with _service(contender) as (settings, info, producer, stack):
            database = make_engine(settings, application="benchmark", pool_size=1)
            try:
                records = Records(settings, database)

                def drain(some: Sequence[Request], what: str, records: Records = records) -> float:
                    progress.say(f"Draining {counted(len(some), 'job')}: {what}")
                    began, until = records.now(), time.monotonic() + limit_seconds
                    producer.enqueue_many([(job, options) for job in some])
                    while time.monotonic() < until:
                        if (seconds := records.seconds(began)) is not None:
                            return seconds
                        stack.wait(0)
                        time.sleep(LOOK_SECONDS)
                    return limit_seconds

                if warm_up:
                    drain(warm_up, f"warm-up, {contender.url}")
                since = records.now()
                seconds = drain(jobs, contender.url)
                report = drain_report(database, since)
            finally:
                database.dispose()
        gpus = contender.gpus or max(1, len(info.devices))
        runs.append(FactoryRun(contender, info, gpus, max(seconds, 1e-3), report))
    progress.clear()
    return runs


@contextmanager
def _service(contender: Contender) -> Iterator[tuple[Settings, EngineInfo, Producer, EmbeddedStack]]:
    """A service in a temporary home without an engine of its own; its worker uses the contender."""
    with ExitStack() as undo:
        home = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="thothy-bench-")))
        home.chmod(0o755)  # servers run as the user `nobody`, who must be able to traverse it
        settings = Settings.load(
            home=home,
            log_level="WARNING",
            metrics_port=0,
            tenant="factory",
            engine_name="factory",
            engine_url=contender.url,
            engine_token=SecretStr(contender.token) if contender.token else None,
            engine_model=contender.model,
            engine_gpus=contender.gpus or 1,
        )
        info = asyncio.run(_answered(contender, declared_by(settings)))
        where = Placement(endpoint=Endpoint(contender.url, contender.token))
        services = tuple(name for name in SERVICES if name != "engine")
        stack = undo.enter_context(EmbeddedStack(settings, services=services, engines=(where,)))
        if not is_foreign(contender.url):
            undo.enter_context(_recorded(stack.settings))
        producer = undo.enter_context(Producer.from_settings(stack.settings))
        yield stack.settings, info, producer, stack


async def _answered(contender: Contender, declared: DeclaredEngine) -> EngineInfo:
    client = connect(contender.url, contender.token, declared)
    try:
        async with asyncio.timeout(LEARN_SECONDS):
            await client.start()
            return await client.info()
    except TimeoutError:
        raise EngineLostError(f"{contender.url} did not answer within {LEARN_SECONDS:g} s") from None
    finally:
        await client.close()


@contextmanager
def _recorded(settings: Settings) -> Iterator[None]:
    """Record the session of one of our engines in this service, which the engine itself does not know."""
    loop = asyncio.new_event_loop()
    client = connect(settings.require_engine_url(), settings.reveal_engine_token())

    async def record() -> None:
        await client.start()
        try:
            await record_server(settings, client)
        finally:
            await client.close()

    recording = loop.create_task(record())
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.wait([recording])))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(recording.cancel)
        thread.join()
        loop.close()
        with suppress(asyncio.CancelledError):
            recording.result()


def factory_rows(runs: Sequence[FactoryRun]) -> list[tuple[str, list[str]]]:
    """The figures by name, with a value for each engine."""
    priced = any(run.contender.price for run in runs)

    def row(name: str, *values: str) -> tuple[str, list[str]]:
        return name, list(values)

    def rate(value: float | None) -> str:
        return "-" if value is None else f"{value:.1%}"

    totals = [run.report.total for run in runs]
    rows = [
        row("model", *(run.info.model for run in runs)),
        row("GPUs", *(f"{run.gpus} declared" if run.info.declared_gpus else f"{run.gpus}" for run in runs)),
        row("drain time", *(f"{run.seconds:,.1f} s" for run in runs)),
        row("jobs per GPU-hour", *(f"{run.per_gpu_hour(run.report.total.finished):,.1f}" for run in runs)),
        row("failure rate", *(rate(total.failure_rate) for total in totals)),
        row("form yield", *(rate(total.form_yield) for total in totals)),
        row("clean yield", *(rate(total.clean_yield) for total in totals)),
        row(
            "accepted artifacts per GPU-hour",
            *(f"{run.per_gpu_hour(run.report.total.with_artifact):,.1f}" for run in runs),
        ),
        row("jobs still open", *(f"{total.open:,}" for total in totals)),
        row("prompt tokens", *(f"{total.prompt_tokens:,}" for total in totals)),
        row("output tokens", *(f"{total.output_tokens:,}" for total in totals)),
    ]
    if priced:
        costs = [run.cost_per_artifact for run in runs]
        rows.append(row("cost per accepted artifact", *("-" if cost is None else f"{cost:.6f}" for cost in costs)))
    return rows
