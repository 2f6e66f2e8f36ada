"""One measurement: load the engine, warm up, drain, check tokens; on request, profile and compare with peers."""

from __future__ import annotations

import gc
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from thothy_ai.bench import peers
from thothy_ai.bench.check import check
from thothy_ai.bench.drain import NO_LATER, BenchCore, Drained, Later, as_requests
from thothy_ai.bench.draws import redraw
from thothy_ai.bench.figures import (
    Figure,
    PeerResult,
    StartUp,
    check_figures,
    drain_figures,
    peer_figures,
    profile_figures,
    start_up_figures,
)
from thothy_ai.bench.models import bench_model, default_shape
from thothy_ai.bench.options import JOBS_ON_A_CPU, BenchOptions
from thothy_ai.bench.pace import Pace, TokenLoad
from thothy_ai.bench.profile import Kernel, profiled, require_gpu
from thothy_ai.bench.progress import Progress, counted, spell
from thothy_ai.bench.urgent import urgent_figures, urgent_requests
from thothy_ai.bench.workload import DrainWork, TokenDraw, Workload, with_house_prompt
from thothy_ai.engine.api import EngineInfo, EngineStats
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.execution.device import resolve_device

_WARM_UP_JOBS = 64  # on a GPU, from which the engine learns how long the outputs of each kind are
_WARM_UP_JOBS_ON_A_CPU = 4


@dataclass(frozen=True, slots=True)
class BenchReport:
    """The report to print, as text or JSON. `where` names the device and torch's version."""

    title: str
    where: str
    figures: tuple[Figure, ...]
    kernels: tuple[Kernel, ...] = ()


def measure(options: BenchOptions, workload: Workload, progress: Progress) -> BenchReport:
    """Measure according to the options. Raises `EngineError`, including `WrongTokensError`."""
    if options.profile:
        require_gpu()
    if options.peer is not None:
        peers.require(options.peer)
    if options.shape is None and options.engine.model is None:
        options = replace(options, shape=default_shape(options.engine))
    work = _work(options, workload, on_gpu=resolve_device(options.engine.device).type == "cuda")
    ours = _Ours(options, work, progress)
    try:
        drained = ours.measure()
    finally:
        ours.close()
    peer_results = []
    if options.peer_seconds is not None:
        peer_results.append(PeerResult(options.peer_name, options.peer_seconds))
    if options.peer is not None:
        progress.say(f"Running the same jobs on {options.peer}")
        peer_results.append(peers.measure(options, ours.warm_up, ours.requests("drain")))
    engine = options.engine
    types = [ours.info.dtype]
    types += [f"fp8 {name}" for name, value in (("weights", engine.weights), ("KV", engine.kv_dtype)) if value == "fp8"]
    pool = f", KV pool of {engine.kv_tokens:,} tokens" if engine.kv_tokens else ""
    return BenchReport(
        title=f"Drain: {options.model_name} {', '.join(types)}; {work.counted} jobs of {work.name}, "
        f"{options.order.value}{pool}",
        where=f"{ours.info.device}, torch {torch.__version__}",
        figures=(*ours.figures, *peer_figures(peer_results, drained)),
        kernels=ours.kernels,
    )


def _work(options: BenchOptions, workload: Workload, *, on_gpu: bool) -> DrainWork:
    """The jobs to drain, and those of the warm-up: the last jobs listed or, on a CPU, a few short ones."""
    if options.draw is not None:
        workload = redraw(workload, options.draw)
    workload = with_house_prompt(workload, options.house_prompt)
    limit = options.jobs or (None if on_gpu else JOBS_ON_A_CPU)
    jobs = workload.ordered(options.order, options.seed)[:limit]
    shortest = sorted(workload.jobs, key=lambda job: (job.output_tokens, job.prompt_tokens))
    warm_up = workload.jobs[-_WARM_UP_JOBS:] if on_gpu else tuple(shortest[:_WARM_UP_JOBS_ON_A_CPU])
    return DrainWork(workload.name, jobs, warm_up, len(workload.jobs))


class _Ours:
    """This project's engine. `measure` fills `figures` and `kernels`."""

    def __init__(self, options: BenchOptions, work: DrainWork, progress: Progress) -> None:
        self._options, self._work, self._progress = options, work, progress
        progress.say(f"Loading {options.model_name}")
        loaded = bench_model(str(options.shape), options.engine, progress.update)
        self._model, self._vocab = loaded.model, loaded.config.vocab_size
        self._drain = BenchCore(loaded, options.engine)
        gc.collect()
        gc.freeze()  # as in the engine's process
        self._ready = process_age()
        self.info: EngineInfo = self._drain.core.info()
        self.figures: list[Figure] = []
        self.kernels: tuple[Kernel, ...] = ()

    @property
    def warm_up(self) -> list[CoreRequest]:
        """Requests of the warm-up's jobs."""
        return as_requests(self._work.warm_up, self._draw("warm-up"), "warm-up")

    def requests(self, run: str) -> list[CoreRequest]:
        """Requests of the jobs. Each run has different tokens, so that the prefix cache holds none of them."""
        return as_requests(self._work.jobs, self._draw(run), run)

    def measure(self) -> Drained:
        """Warm up, drain, check, profile."""
        first, *others = self.warm_up
        self._progress.say(f"Warming up with {counted(1 + len(others), 'job')}")
        self._drain.run([first])
        start_up = StartUp(self._ready, process_age())
        if others:
            self._drain.run(others)
        self._announce()
        drained = self._run("drain")
        options = self._options

        def on_job(index: int, jobs: int) -> None:
            show = self._progress.update if index else self._progress.say
            show(f"Checking the tokens of job {index + 1} of {jobs}")

        checked = check(drained, self._model, options.engine, options.tolerance, on_job)
        unit = "GPU-hour" if self._on_gpu else "compute-hour"
        figures = drain_figures(drained, self._work.counted, unit)
        self.figures += [*figures, *check_figures(checked), *start_up_figures(start_up)]
        if options.urgent is not None:
            self._progress.say(f"Draining again, with an urgent job every {options.urgent:g} s")
            later = urgent_requests(self.requests("urgent"), drained.seconds, options.urgent)
            self.figures += urgent_figures(drained, self._run("drain with urgent jobs", later))
        if self._options.profile:
            self._progress.say("Draining again, profiled")
            profile, again = profiled(lambda: self._run("profiled"))
            self.figures += profile_figures(profile, again)
            self.kernels = profile.kernels
        self._progress.clear()
        return drained

    def close(self) -> None:
        """Free the device's memory for a peer."""
        self._drain.close()
        del self._drain, self._model
        gc.unfreeze()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    @property
    def _on_gpu(self) -> bool:
        return self._model.device.type == "cuda"

    def _announce(self) -> None:
        """Say what will be drained and, on a CPU, estimate the time from the pace of the warm-up."""
        work, jobs = self._work, len(self._work.jobs)
        text = f"Draining {work.counted} jobs of {work.name}" if jobs > 1 else f"Draining 1 job of {work.name}"
        if self._options.jobs is None and jobs < work.listed:
            text += f", a sample (--jobs {work.listed} drains all)"
        if not self._on_gpu:
            pace = Pace(EngineStats().core, self._drain.core.stats().core)
            text += f"; it may take {spell(pace.full_seconds(TokenLoad.of(work.jobs)))}"
        self._progress.say(text)

    def _run(self, name: str, later: Later = NO_LATER) -> Drained:
        """Drain the jobs with a new draw of tokens, and show progress."""
        load, before = TokenLoad.of(self._work.jobs), self._drain.core.stats().core
        begin = time.perf_counter()

        def show(done: int, stats: EngineStats) -> None:
            pace = Pace(before, stats.core)
            left = pace.remaining_seconds(load)
            self._progress.update(
                f"{done:,} of {counted(len(self._work.jobs), 'job')} done, "
                f"{pace.tokens / (time.perf_counter() - begin):,.0f} tokens/s"
                + (f", about {spell(left)} left" if left is not None else "")
            )

        return self._drain.run(self.requests(name), show, later)

    def _draw(self, run: str) -> TokenDraw:
        return TokenDraw(self._vocab, f"{self._options.seed} {run}")


def process_age() -> float:
    """Seconds since this process started, imports included (Linux)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    began = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # since boot; field 22 in proc(5)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began
