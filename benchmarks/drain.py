"""Drains a workload file through the engine core on a model of a named shape, and reports the figures of a drain.

The rules are those of the workload files: random weights, greedy, end-of-text ignored, everything at once; the
clock runs from the hand-over to the last token, after a warm-up drain of other jobs.

    python -m benchmarks.drain --shape llama-8b --jobs 100
"""

from __future__ import annotations

import argparse
import json
import queue
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.results import table, write_section
from benchmarks.shapes import SHAPES, random_model
from thothy_ai.engine.api import EngineStats, SamplingParams
from thothy_ai.engine.build import build_core, resolve_device, resolve_dtype
from thothy_ai.engine.core import EngineCore
from thothy_ai.engine.core_api import CoreRequest, Event, FinishedEvent
from thothy_ai.engine.options import EngineOptions

WORKLOADS = Path(__file__).with_name("workloads")
WARM_UP_JOBS = 64


@dataclass(frozen=True)
class Drained:
    """What a drain took. Counters are those of the drain alone."""

    jobs: int
    seconds: float
    before: EngineStats
    after: EngineStats

    def rows(self) -> list[tuple[str, str]]:
        """Figures by name."""
        prompt = self.after.prompt_tokens - self.before.prompt_tokens
        cached = self.after.cached_tokens - self.before.cached_tokens
        output = self.after.output_tokens - self.before.output_tokens
        busy = self.after.busy_seconds - self.before.busy_seconds
        return [
            ("jobs", f"{self.jobs:,}"),
            ("seconds", f"{self.seconds:.1f}"),
            ("jobs per GPU-hour", f"{self.jobs / self.seconds * 3600:,.0f}"),
            ("tokens/s, prompt and output", f"{(prompt + output) / self.seconds:,.0f}"),
            ("prefix cache hit rate", f"{cached / prompt:.1%}"),
            ("preemptions", f"{self.after.preemptions - self.before.preemptions}"),
            ("steps", f"{self.after.steps - self.before.steps:,}"),
            ("time in steps, launch gaps included", f"{busy / self.seconds:.1%}"),
            ("of that in prefill", f"{(self.after.prefill_seconds - self.before.prefill_seconds) / busy:.1%}"),
        ]


class Drain:
    """Feeds jobs to one core and waits for all of them."""

    def __init__(self, options: EngineOptions, shape: str) -> None:
        device = resolve_device(options.device)
        loaded = random_model(shape, device, resolve_dtype(options.dtype, device))
        self._vocab = loaded.config.vocab_size
        self._events: queue.SimpleQueue[list[Event]] = queue.SimpleQueue()
        self.core: EngineCore = build_core(loaded, options, self._events.put)
        self.core.start()

    def run(self, jobs: list[CoreRequest]) -> Drained:
        """Hand over, wait; every job must have all its tokens."""
        before, begin = self.core.stats(), time.perf_counter()
        wanted = {job.id: job.sampling.max_tokens for job in jobs}
        for job in jobs:
            self.core.submit(job)
        while wanted:
            for event in self._events.get():
                if isinstance(event, FinishedEvent) and event.output_tokens != wanted.pop(event.id):
                    raise RuntimeError(f"job {event.id} ended early: {event}")
        return Drained(len(jobs), time.perf_counter() - begin, before, self.core.stats())

    def templates(self, jobs: list[list[object]], prefix: str) -> list[CoreRequest]:
        """[kind, template tokens, body tokens, output tokens] -> requests; a kind's template is shared."""
        draw = random.Random(prefix)
        shared: dict[object, tuple[int, ...]] = {}
        requests = []
        for index, (kind, template, body, output) in enumerate(jobs):
            head = shared.setdefault(kind, self._tokens(draw, int(str(template))))
            sampling = SamplingParams(max_tokens=int(str(output)), ignore_eos=True)
            prompt = head + self._tokens(draw, int(str(body)))
            requests.append(CoreRequest(f"{prefix}-{index}", prompt, sampling, profile=str(kind)))
        return requests

    def _tokens(self, draw: random.Random, count: int) -> tuple[int, ...]:
        return tuple(draw.choices(range(self._vocab), k=count))


def main() -> None:
    """Run one drain and write its section of the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="llama-8b")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--peer-seconds", type=float, help="seconds that a peer took for the same jobs")
    arguments = parser.parse_args()
    jobs = json.loads((WORKLOADS / "templates.json").read_text())["jobs"]
    drain = Drain(EngineOptions(url=""), arguments.shape)
    drain.run(drain.templates(jobs[-WARM_UP_JOBS:], "warm-up"))
    drained = drain.run(drain.templates(jobs[: arguments.jobs], "drain"))
    rows = drained.rows()
    if arguments.peer_seconds:
        rows.append(("peer's seconds over ours", f"{arguments.peer_seconds / drained.seconds:.2f}"))
    info = drain.core.info()
    drain.core.stop()
    drain.core.join()
    command = f"python -m benchmarks.drain {' '.join(sys.argv[1:])}"
    title = f"Drain: {arguments.shape} {info.dtype}, the first {arguments.jobs:,} jobs of templates"
    write_section(title, command, table(("figure", "value"), rows), where=f"{info.device}, torch {torch.__version__}")
    print(title, *(f"{name:30} {value}" for name, value in rows), sep="\n")


if __name__ == "__main__":
    main()
