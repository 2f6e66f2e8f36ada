"""One measurement: load the engine, warm up, drain, check tokens; then profile and compare with peers, if asked to."""

from __future__ import annotations

import gc
import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from thothy_ai.bench import peers
from thothy_ai.bench.check import check
from thothy_ai.bench.drain import Drain, Drained, as_requests
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
from thothy_ai.bench.models import bench_model
from thothy_ai.bench.options import BenchOptions
from thothy_ai.bench.profile import Kernel, profiled, require_gpu
from thothy_ai.bench.workload import TokenDraw, Work
from thothy_ai.engine.api import EngineInfo
from thothy_ai.engine.core_api import CoreRequest


@dataclass(frozen=True, slots=True)
class Report:
    """What is printed, as text or JSON. `where` names the device and torch's version."""

    title: str
    where: str
    figures: tuple[Figure, ...]
    kernels: tuple[Kernel, ...] = ()


def measure(options: BenchOptions, work: Work) -> Report:
    """Measure according to the options. Raises `EngineError`, also for wrong tokens."""
    if options.profile:
        require_gpu()
    if options.peer is not None:
        peers.require(options.peer)
    ours = _Ours(options, work)
    info, drained = ours.info, ours.measure()
    ours.close()
    peer_results = []
    if options.peer_seconds is not None:
        peer_results.append(PeerResult(options.peer_name, options.peer_seconds))
    if options.peer is not None:
        peer_results.append(peers.measure(options, ours.warm_up, ours.requests("drain")))
    return Report(
        title=_title(options, work, info),
        where=f"{info.device}, torch {torch.__version__}",
        figures=(*ours.figures, *peer_figures(peer_results, drained)),
        kernels=ours.kernels,
    )


class _Ours:
    """This project's engine. `figures` and `kernels` are filled as it is measured."""

    def __init__(self, options: BenchOptions, work: Work) -> None:
        self._options, self._work = options, work
        loaded = bench_model(options.shape, options.engine)
        self._model, self._vocab = loaded.model, loaded.config.vocab_size
        self._drain = Drain(loaded, options.engine)
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
        """Requests of the jobs; each run has other tokens, so that it finds none in the prefix cache."""
        return as_requests(self._work.jobs, self._draw(run), run)

    def measure(self) -> Drained:
        """Warm up, drain, check, profile."""
        first, *others = self.warm_up
        self._drain.run([first])
        start_up = StartUp(self._ready, process_age())
        if others:
            self._drain.run(others)
        drained = self._drain.run(self.requests("drain"))
        checked = check(drained, self._model, self._options.engine, self._options.tolerance)
        self.figures += [*drain_figures(drained), *check_figures(checked), *start_up_figures(start_up)]
        if self._options.profile:
            profile, again = profiled(lambda: self._drain.run(self.requests("profiled")))
            self.figures += profile_figures(profile, again)
            self.kernels = profile.kernels
        return drained

    def close(self) -> None:
        """Free the device's memory for a peer."""
        self._drain.close()
        del self._drain, self._model
        gc.unfreeze()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _draw(self, run: str) -> TokenDraw:
        return TokenDraw(self._vocab, f"{self._options.seed} {run}")


def process_age() -> float:
    """Seconds since this process started, imports included (Linux)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    began = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # since boot; field 22 in proc(5)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began


def _title(options: BenchOptions, work: Work, info: EngineInfo) -> str:
    engine = options.engine
    types = [info.dtype]
    types += [f"fp8 {name}" for name, value in (("weights", engine.weights), ("KV", engine.kv_dtype)) if value == "fp8"]
    jobs = f"{len(work.jobs):,} jobs of {work.name}"
    pool = f", KV pool of {engine.kv_tokens:,} tokens" if engine.kv_tokens else ""
    return f"Drain: {options.model_name} {', '.join(types)}; {jobs}, {options.order.value}{pool}"
