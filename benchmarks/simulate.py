"""What a drain would take: the real scheduler over counts alone, and a model of the device that adds up each step.

It compares defaults without a GPU: rows, token budget, blocks, groups, order of arrival, and windows, of which the
scheduler knows and the model of the device does not. A few jobs run first, as in a measured drain, so that admission
has learnt their lengths.

    python -m benchmarks.simulate
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.command_line import CommandLine
from benchmarks.device_model import LLAMA, LLAMA_FP8, QWEN, Device
from benchmarks.results import table
from thothy_ai.bench.draws import redraw
from thothy_ai.bench.workload import Order, TokenDraw, WorkloadJob, read_workload, with_house_prompt
from thothy_ai.engine.api import FinishReason, SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.api.step import Step
from thothy_ai.engine.scheduling.scheduler import Scheduler
from thothy_ai.engine.scheduling.sequence import Sequence as Running
from thothy_ai.engine.scheduling.step_builder import ScheduledStep

WORKLOADS = Path(__file__).with_name("workloads")
VOCAB = 1000  # the cost model knows the real one
WARM_UP_JOBS = 16


@dataclass(frozen=True)
class Row:
    """A measured drain of RESULTS.md, or a variant of it."""

    name: str
    device: Device
    workload: str
    order: Order = Order.LISTED
    kv_tokens: int | None = None
    draw: int | None = None
    house: int = 0  # tokens before every prompt
    adapters: int = 0  # asked for in turn; their slots, and what they cost the device, are not simulated
    budget: int = 1280

    def jobs(self) -> tuple[WorkloadJob, ...]:
        workload = read_workload(WORKLOADS / f"{self.workload}.json")
        drawn = workload if self.draw is None else redraw(workload, self.draw)
        jobs = with_house_prompt(drawn, self.house).ordered(self.order)
        if not self.adapters:
            return jobs
        return tuple(_of_adapter(job, number % self.adapters) for number, job in enumerate(jobs))

    def config(
        self,
        *,
        rows: int = 1024,
        budget: int | None = None,
        block: int = 32,
        group: int = 8,
        windows: tuple[int | None, ...] = (None,),
    ) -> EngineConfig:
        """With `windows`, the pool's memory is the same, and layers are in as many groups of the same size."""
        blocks = (self.kv_tokens or self.device.pool_tokens) // block * len(windows) + 1
        return EngineConfig(block, blocks, rows, budget or self.budget, 8192, group_rows=group, windows=windows)


def _of_adapter(job: WorkloadJob, adapter: int) -> WorkloadJob:
    """The job with other tokens at its beginning, since adapters share no prefixes."""
    first, *others = job.parts
    return replace(job, parts=(first._replace(name=f"{first.name}, adapter {adapter}"), *others))


ROWS = (
    Row("llama-8b bf16, templates", LLAMA, "templates"),
    Row("llama-8b fp8, templates", replace(LLAMA, gemms=LLAMA_FP8), "templates"),
    Row("llama-8b bf16, siblings by source, 200k", LLAMA, "siblings", Order.SOURCE, 200_000),
    Row("llama-8b bf16, siblings shuffled, 200k", LLAMA, "siblings", Order.SHUFFLED, 200_000),
    Row("the same, house prompt of 300 tokens", LLAMA, "siblings", Order.SHUFFLED, 200_000, house=204),
    Row("the same, house prompt of 2,000 tokens", LLAMA, "siblings", Order.SHUFFLED, 200_000, house=1904),
    Row("qwen3-0.6b bf16, templates", QWEN, "templates", budget=8192),
    Row("llama-8b bf16, templates, 8 adapters", LLAMA, "templates", adapters=8),
    Row("llama-8b bf16, templates, 16 adapters", LLAMA, "templates", adapters=16),
)


@dataclass
class Drained:
    """What the simulated drain took: the device's seconds by part, and this host's."""

    device: Counter[str]
    tail: float = 0.0  # device seconds after the last admission
    prefill_hidden: float = 0.0  # what prefill attention beside decode attention would save at most
    gemm_hidden: float = 0.0  # what GEMMs beside decode attention would
    steps: int = 0
    tokens: int = 0
    members: int = 0
    host_seconds: float = 0.0
    preemptions: int = 0
    hit_rate: float = 0.0
    peak: float = 0.0

    @property
    def seconds(self) -> float:
        return self.device.total()


class Simulation:
    """The core's loop with overlap: a step is planned before the one ahead of it is read."""

    def __init__(self, device: Device, config: EngineConfig) -> None:
        self._device = device
        self._scheduler = Scheduler(config)
        self._drained = Drained(Counter())
        self._left = 0

    def run(self, jobs: Sequence[WorkloadJob], seed: str) -> Drained:
        """Drain the jobs; tokens are those of the seed."""
        self._drained, self._left = Drained(Counter()), len(jobs)
        draw = TokenDraw(VOCAB, seed)
        sequences = [_sequence(str(index), job, draw) for index, job in enumerate(jobs)]
        for sequence in sequences:
            self._scheduler.add(sequence)
        last: ScheduledStep | None = None
        while self._left:
            begin = time.thread_time()
            scheduled = self._scheduler.schedule()
            if last is not None:
                self._commit(last)
            self._drained.host_seconds += time.thread_time() - begin
            if scheduled is not None:
                self._count(scheduled.step)
            last = scheduled
        self._scheduler.check()
        prompt = sum(sequence.prompt_tokens for sequence in sequences)
        self._drained.hit_rate = sum(sequence.cached_tokens for sequence in sequences) / prompt
        self._drained.preemptions = self._scheduler.preemptions
        return self._drained

    def _commit(self, scheduled: ScheduledStep) -> None:
        for sequence, samples in zip(scheduled.members, scheduled.step.samples.tolist(), strict=True):
            sequence.in_flight -= 1
            if samples:
                sequence.pending -= 1
                sequence.tokens.append(1)
            if sequence.output_tokens >= sequence.max_tokens:
                sequence.finish(FinishReason.LENGTH)
                self._scheduler.retire(sequence)
                self._left -= 1

    def _count(self, step: Step) -> None:
        drained, counts = self._drained, self._scheduler.pool.counts
        parts = self._device.parts(step)
        drained.device += parts
        drained.tail = 0.0 if self._scheduler.waiting else drained.tail + parts.total()
        drained.prefill_hidden += min(parts["prefill"], parts["decode"])
        drained.gemm_hidden += min(parts["gemm"], parts["decode"])
        drained.steps += 1
        drained.tokens += step.num_tokens
        drained.members += step.num_members
        drained.peak = max(drained.peak, counts.used / self._scheduler.pool.total)


def simulate(device: Device, config: EngineConfig, jobs: Sequence[WorkloadJob]) -> Drained:
    """The drain of the jobs, after a warm-up."""
    simulation = Simulation(device, config)
    simulation.run(jobs[-WARM_UP_JOBS:], "warm-up")
    return simulation.run(jobs, "drain")


def _sequence(name: str, job: WorkloadJob, draw: TokenDraw) -> Running:
    sampling = SamplingParams(max_tokens=job.output_tokens, ignore_eos=True)
    request = CoreRequest(name, draw.prompt(job), sampling, profile=job.kind)
    return Running(request, max_tokens=job.output_tokens)


def variants(row: Row) -> Iterator[tuple[str, Device, EngineConfig, Sequence[WorkloadJob]]]:
    """One thing changed at a time."""
    device, jobs, config = row.device, row.jobs(), row.config
    yield "as it is", device, config(), jobs
    for rows in (256, 512, 768):
        yield f"{rows} rows", device, config(rows=rows), jobs
    for budget in (768, 1024, 1280, 1536, 2048, 4096, 8192):
        yield f"budget {budget}", device, config(budget=budget), jobs
    for block in (16, 64):
        yield f"blocks of {block}", device, config(block=block), jobs
    for group in (1, 4, 16, 1024):
        yield f"groups of {group}", device, config(group=group), jobs
    yield "half the layers see 128", device, config(windows=(None, 128)), jobs
    yield "five of six layers see 1,024", device, config(windows=(None, *(1024,) * 5)), jobs
    yield "shuffled", device, config(), replace(row, order=Order.SHUFFLED).jobs()
    for draw in range(1, 6):
        yield f"draw {draw}", device, config(), replace(row, draw=draw).jobs()


USUAL = "1024 rows, blocks of 32, groups of 8"
HEADER = (
    "variant", "seconds", "GEMM", "head", "decode", "prefill", "elementwise", "fixed", "tail",
    "prefill hides", "GEMM hides", "steps", "mean batch", "preempted", "hits", "peak", "host ms/step",
)  # fmt: skip


def cells(name: str, drained: Drained) -> tuple[str, ...]:
    """Cells of a variant."""
    parts = [drained.device[part] for part in ("gemm", "head", "decode", "prefill", "elementwise", "fixed")]
    beside = (drained.tail, drained.prefill_hidden, drained.gemm_hidden)
    return (
        name,
        *(f"{seconds:.1f}" for seconds in (drained.seconds, *parts, *beside)),
        f"{drained.steps}",
        f"{drained.members / drained.steps:.0f}",
        f"{drained.preemptions}",
        f"{drained.hit_rate:.1%}",
        f"{drained.peak:.0%}",
        f"{drained.host_seconds / drained.steps * 1e3:.2f}",
    )


def main() -> None:
    """Print a table for each row."""
    parser = CommandLine("simulate", __doc__)
    parser.add_argument("--row", type=int, choices=range(len(ROWS)), help="run only this row")
    chosen = parser.parse_args().row
    for row in ROWS if chosen is None else (ROWS[chosen],):
        pool = row.kv_tokens or row.device.pool_tokens
        print(f"\n{row.name}: pool of {pool:,} tokens, budget {row.budget}, {USUAL} unless stated otherwise\n")
        rows = [cells(name, simulate(device, config, jobs)) for name, device, config, jobs in variants(row)]
        print(table(HEADER, rows), flush=True)


if __name__ == "__main__":
    main()
