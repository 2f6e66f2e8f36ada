"""`thothy bench drain --kinds`: starts an engine, drains the jobs three times and reports the figures side by side."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from thothy_ai.bench.figures import Figure, StartUp, start_up_figures
from thothy_ai.bench.kind_drain import KindRun, drain, validity, without_schemas
from thothy_ai.bench.measure import BenchReport, process_age
from thothy_ai.bench.models import default_shape, random_folder
from thothy_ai.bench.options import JOBS_ON_A_CPU, BenchOptions
from thothy_ai.bench.progress import Progress, counted
from thothy_ai.bench.requests import JOBS, Backlog, MakeRequests
from thothy_ai.engine.api import EngineStats, GenerationRequest
from thothy_ai.engine.api.backend import RunningEngine
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.execution.device import resolve_device
from thothy_ai.engine.process.factory import make_engine

_WARM_UP_JOBS, _WARM_UP_JOBS_ON_A_CPU = 64, 2
_WARM_UP_SEED = 1_000_003  # makes jobs that are not in the drains
_FIRST, _AGAIN, _WITHOUT = "schemas, first time", "schemas, again", "no schemas"


def measure_kinds(options: BenchOptions, make: MakeRequests, progress: Progress) -> BenchReport:
    """Measure according to the options. Raises `EngineError`."""
    on_gpu = resolve_device(options.engine.device).type == "cuda"
    backlog = Backlog(
        options.jobs or (JOBS if on_gpu else JOBS_ON_A_CPU), options.kind, options.seed, options.house_prompt
    )
    requests = make(backlog)
    warm_up = make(replace(backlog, jobs=_WARM_UP_JOBS if on_gpu else _WARM_UP_JOBS_ON_A_CPU, seed=_WARM_UP_SEED))
    with engine_folder(options) as engine_options:
        progress.say(f"Loading {engine_options.model.resolve().name if engine_options.model else 'nothing'}")
        engine = make_engine(engine_options)
        try:
            ready = process_age()
            progress.say(f"Warming up with {counted(len(warm_up), 'job')}")
            # Without schemas, so that the first drain compiles the grammars. The engine learns the outputs' lengths.
            drain(engine, [replace(request, schema=None) for request in warm_up], "warm-up")
            start_up = StartUp(ready, process_age())
            first = _drain(engine, requests, _FIRST, progress)
            again = _drain(engine, requests, _AGAIN, progress)
            without = _drain(engine, without_schemas(requests, first), _WITHOUT, progress)
            info = engine.backend.info()
        finally:
            engine.backend.stop()
            engine.wait_ended()
            engine.close()
    progress.clear()
    unit = "GPU-hour" if on_gpu else "compute-hour"
    return BenchReport(
        title=f"Drain of jobs: {info.model} {info.dtype}; {len(requests):,} jobs of {options.kind or 'the four kinds'}"
        + (f", house prompt of {options.house_prompt:,} words" if options.house_prompt else ""),
        where=f"{info.device}, torch {torch.__version__}",
        figures=(*kind_figures(requests, (first, again, without), unit), *start_up_figures(start_up)),
    )


@contextmanager
def engine_folder(options: BenchOptions) -> Iterator[EngineOptions]:
    """Options of an engine with a tokenizer: those of `--model`, or of a temporary folder with random weights."""
    engine = options.engine
    if engine.model is not None:
        yield engine
        return
    if options.tokenizer is None:
        raise InvalidRequestError("a shape has no tokenizer: pass --tokenizer FOLDER, or --model PATH instead")
    shape = options.shape or default_shape(engine)
    with tempfile.TemporaryDirectory(prefix="thothy-bench-") as parent:
        folder = Path(parent) / shape
        folder.mkdir()
        yield replace(engine, model=random_folder(shape, options.tokenizer, folder))


def _drain(engine: RunningEngine, requests: Sequence[GenerationRequest], name: str, progress: Progress) -> KindRun:
    progress.say(f"Draining {counted(len(requests), 'job')}: {name}")
    began = time.perf_counter()

    def show(ended: int, stats: EngineStats) -> None:
        progress.update(
            f"{ended:,} of {counted(len(requests), 'job')} done after {time.perf_counter() - began:.0f} s, "
            f"{stats.scheduler.running:,} running, {stats.scheduler.waiting:,} waiting"
        )

    return drain(engine, requests, name, show)


def kind_figures(requests: Sequence[GenerationRequest], runs: Sequence[KindRun], unit: str) -> list[Figure]:
    """The jobs, then a row per figure with the runs side by side; the last run has no schemas."""

    def per_step(seconds: Callable[[KindRun], float]) -> Callable[[KindRun], str]:
        return lambda run: f"{seconds(run) / run.gained('steps') * 1e3:.2f} ms"

    bare = runs[-1]
    columns: list[tuple[str, Callable[[KindRun], str]]] = [
        ("seconds", lambda run: f"{run.seconds:.2f}"),
        ("times the seconds without schemas", lambda run: f"{run.seconds / bare.seconds:.3f}"),
        (f"jobs per {unit}", lambda run: f"{len(run.results) / run.seconds * 3600:,.0f}"),
        ("prompt tokens", lambda run: f"{run.gained('prompt_tokens'):,.0f}"),
        ("output tokens", lambda run: f"{run.output_tokens:,}"),
        ("prefix cache hit rate", lambda run: f"{run.gained('cached_tokens') / run.gained('prompt_tokens'):.1%}"),
        ("preemptions", lambda run: f"{run.after.scheduler.preemptions - run.before.scheduler.preemptions:,}"),
        ("steps", lambda run: f"{run.gained('steps'):,.0f}"),
        ("of those replayed from a graph", lambda run: f"{run.gained('replayed_steps'):,.0f}"),
        # `busy_seconds` leaves out the time between a step's forward pass and its sampling.
        ("time in steps, launch gaps included", lambda run: f"{run.gained('busy_seconds') / run.seconds:.1%}"),
        ("device time per step", per_step(lambda run: run.gained("busy_seconds"))),
        ("device waiting for the host, per step", per_step(lambda run: run.seconds - run.gained("busy_seconds"))),
        ("host's own time per step", per_step(lambda run: run.seconds - run.gained("wait_seconds"))),
        ("masks per step", per_step(lambda run: run.gained("mask_seconds"))),
        ("masks in all", lambda run: f"{run.gained('mask_seconds'):.2f} s"),
    ]
    kinds = Counter(request.profile.partition("/")[0] for request in requests)
    checked = [validity(requests, run) for run in runs[:-1]]
    flaws = [run.first_flaw for run in checked if run.first_flaw is not None]
    return [
        ("jobs", f"{len(requests):,}: " + ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())),
        ("runs, in this order", "; ".join(run.name for run in runs)),
        *((name, "; ".join(value(run) for run in runs)) for name, value in columns),
        ("outputs that match their schema", "; ".join(f"{run.valid:,}" for run in checked)),
        ("outputs cut at max_tokens", "; ".join(f"{run.cut:,}" for run in checked)),
        ("invalid outputs", "; ".join(f"{run.invalid:,}" for run in checked)),
        *(("first flaw", flaw) for flaw in flaws[:1]),
    ]
