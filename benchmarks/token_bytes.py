"""A drain's seconds beside the bytes that its tokens need: what a hybrid takes more than a plain model, or less.

    python -m benchmarks.token_bytes                on a GPU: siblings in shuffled order, both shapes
    python -m benchmarks.token_bytes --device cpu --shape tiny --jobs 8

Models differ in what a token needs: experts, keys and values, states. A step must read the weights of the experts that
its tokens chose and all other weights once, the keys and values of decoding rows, of shared prefixes once for each
group of rows, and of prompts' earlier tokens; and read and write each row's states. How many experts a number of tokens
choose is counted in steps without graphs, after the drain. Each shape runs in a process of its own.

Outputs are sampled at temperature 1, as the jobs of most kinds are. With --greedy, the rows of a plain model with
random weights soon repeat the same tokens, and so choose the same experts, which no real text does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NoReturn
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from benchmarks.command_line import CommandLine, positive
from benchmarks.phases import BenchmarkError
from thothy_ai.bench.drain import BenchCore, as_requests
from thothy_ai.bench.models import bench_model
from thothy_ai.bench.shapes import SHAPES
from thothy_ai.bench.workload import Order, PromptPart, TokenDraw, WorkloadJob, read_workload
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.api.step import NOT_KEPT, Step
from thothy_ai.engine.core.parts import LaunchedStep, StepLauncher
from thothy_ai.engine.execution.device import resolve_kv_dtype, resolve_state_dtype
from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.models.layers.experts import ExpertRouter
from thothy_ai.engine.scheduling.step_builder import ScheduledStep
from thothy_ai.engine.weights.loader import LoadedModel
from thothy_ai.kernels.experts import Routed
from thothy_ai.kernels.operations import Operations

WORKLOADS = Path(__file__).with_name("workloads")
COUNTED_ROWS = (4, 16, 48, 96, 160, 256, 400)  # that decode together while chosen experts are counted
COUNTED_TOKENS = 24  # of an output, in those steps
COUNTED_PROMPT = 64  # tokens
POOL = 600_000  # tokens of KV in the drain, which leaves memory for counting
KV_BLOCK = 32
WARM_UP = 64  # jobs
TB = 1e12


@dataclass(frozen=True)
class Case:
    """One shape's drain; states are in bfloat16."""

    shape: str
    workload: str
    weights: str
    device: str
    greedy: bool
    jobs: int | None


@dataclass(frozen=True)
class Sizes:
    """Bytes of a model: of one expert in all layers, of the other weights but embeddings, of which a token reads a row,
    of a token's keys and values, and of a row's states. `experts` is the number of experts in a layer that tokens
    choose from; one that gets all tokens is among the other weights.
    """

    experts: int
    expert: int
    others: int
    kv: float
    states: int

    @classmethod
    def of(cls, loaded: LoadedModel, options: EngineOptions) -> Sizes:
        config, model = loaded.config, loaded.model
        groups = config.layer_groups
        if groups.windows != (None,):
            raise BenchmarkError("layers with windows read less than the tokens before: take another shape")
        kv_dtype = resolve_kv_dtype(options.kv_dtype, model.dtype, model.device)
        kv = KVCache.bytes_per_block(groups, KV_BLOCK, kv_dtype) / KV_BLOCK
        states = KVCache.bytes_per_slot(config, model.dtype, resolve_state_dtype(options.state_dtype))
        others = model.num_bytes - (0 if config.tied_embeddings else model.decoder.table.nbytes)
        if (experts := config.experts) is None:
            return cls(0, 0, others, kv, states)
        size = 1 if options.weights == "fp8" else model.dtype.itemsize
        expert = 3 * config.hidden_size * experts.inner * experts.layers * size
        return cls(experts.count, expert, others - experts.count * expert, kv, states)

    def of_step(self, step: Step, chosen: Chosen) -> Counter[str]:
        """The bytes that a step needs, by what they are; `chosen` tells the experts that its tokens chose."""
        groups = step.groups
        lasts = np.append(step.rows[1:] != step.rows[:-1], True)  # of each row's members
        read = int(step.ends[lasts].sum()) - int(((groups.sizes - 1) * groups.shared).sum())
        moved = 2 * len(np.unique(step.rows)) + 2 * len(step.restored.sources) + int((step.keeps != NOT_KEPT).sum())
        return Counter(
            experts=chosen.among(step.num_tokens) * self.expert,
            others=self.others,
            kv=read * self.kv,
            states=moved * self.states,
        )


class Chosen:
    """How many of a layer's experts the tokens of a step chose, on average over layers, by the number of tokens."""

    def __init__(self, sizes: Sizes) -> None:
        self._most = sizes.experts
        self._found: defaultdict[int, list[Tensor]] = defaultdict(list)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count in each step without graphs."""
        route = ExpertRouter.__call__

        def counted(router: ExpertRouter, hidden: Tensor, operations: Operations) -> Routed:
            routed = route(router, hidden, operations)
            chosen = torch.bincount(routed.experts.flatten(), minlength=self._most) > 0
            self._found[len(hidden)].append(chosen[: self._most].sum())
            return routed

        with mock.patch.object(ExpertRouter, "__call__", counted):
            yield

    def among(self, tokens: int) -> float:
        """Interpolated between the numbers of tokens that were counted."""
        return float(np.interp(tokens, *self._means))

    @cached_property
    def _means(self) -> tuple[list[float], list[float]]:
        """Numbers of tokens that were counted, and of experts that they chose."""
        counts = sorted(self._found)
        means = [torch.stack(self._found[count]).double().mean().item() for count in counts]
        return [0.0, *counts], [0.0, *means]


def main() -> None:
    line = CommandLine("token_bytes", __doc__)
    line.add_argument("--device", default="cuda")
    line.add_argument("--shape", action="append", choices=[*SHAPES], help="these instead; the last is compared with")
    line.add_argument("--workload", choices=("siblings", "templates"), default="siblings")
    line.add_argument("--weights", choices=("auto", "fp8"), default="fp8")
    line.add_argument("--greedy", action="store_true", help="outputs of the most likely tokens")
    line.add_argument("--jobs", type=positive(int), help="only so many")
    line.add_argument("--case", help="a case, as JSON: what the processes of this one run")
    given = line.parse_args()
    if given.case:
        with line.checked():
            measure(Case(**json.loads(given.case)))
    figures: list[tuple[str, str]] = []
    rates: list[tuple[float, float]] = []
    for shape in given.shape or ("qwen3.5-35b-a3b", "qwen3-30b-a3b"):
        case = Case(shape, given.workload, given.weights, given.device, given.greedy, given.jobs)
        command = [sys.executable, "-m", "benchmarks.token_bytes", "--case", json.dumps(asdict(case))]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            line.exit(done.returncode)
        found = json.loads(done.stdout.splitlines()[-1])
        seconds, parts = found["seconds"], found["bytes"]
        rates.append((seconds, seconds / sum(parts.values())))
        each = "; ".join(f"{name} {count / TB:.1f}" for name, count in parts.items())
        figures += [
            (f"{shape}: seconds; steps; tokens", f"{seconds:.2f} s; {found['steps']:,}; {found['tokens']:,}"),
            (f"{shape}: TB that its tokens need", f"{sum(parts.values()) / TB:.1f} ({each})"),
        ]
        if found["experts"]:
            figures.append(
                (f"{shape}: experts of {found['experts']} chosen by 16; 64; 256; 1,024 tokens", found["chosen"])
            )
    figures.append(("seconds; seconds per byte: the first model's over the last one's", _ratios(rates)))
    for figure in figures:
        print(*figure, sep=" | ")


def _ratios(rates: Sequence[tuple[float, float]]) -> str:
    (seconds, rate), (peer_seconds, peer_rate) = rates[0], rates[-1]
    return f"{seconds / peer_seconds:.3f}; {rate / peer_rate:.3f}"


def measure(case: Case) -> NoReturn:
    """Drain, count experts, print what was found as JSON, and end this process, whose second core holds much memory."""
    options = EngineOptions(url="", device=case.device, weights=case.weights, state_dtype="bfloat16")
    loaded = bench_model(case.shape, options)
    sizes, steps = Sizes.of(loaded, options), list[Step]()
    core = BenchCore(loaded, replace(options, kv_tokens=None if case.device == "cpu" else POOL))
    workload = read_workload(WORKLOADS / f"{case.workload}.json")
    jobs = workload.ordered(Order.SHUFFLED)[: case.jobs]
    core.run(_requests(workload.jobs[-WARM_UP:], loaded, case, "warm-up"))
    with _noting(steps):
        drained = core.run(_requests(jobs, loaded, case, "drain"))
    core.close()
    chosen = Chosen(sizes)
    if sizes.experts:
        _count(chosen, loaded, case, options)
    total = sum((sizes.of_step(step, chosen) for step in steps), Counter())
    found = {
        "seconds": drained.seconds,
        "steps": len(steps),
        "tokens": sum(step.num_tokens for step in steps),
        "bytes": total,
        "experts": sizes.experts,
        "chosen": "; ".join(f"{chosen.among(tokens):.0f}" for tokens in (16, 64, 256, 1024)),
    }
    print(json.dumps(found), flush=True)
    os._exit(0)


def _count(chosen: Chosen, loaded: LoadedModel, case: Case, options: EngineOptions) -> None:
    """Count the experts that prompts choose, and rows that decode together."""
    most = max(COUNTED_ROWS)
    core = BenchCore(
        loaded, replace(options, graphs=False, max_rows=most, kv_tokens=2 * most * (COUNTED_PROMPT + COUNTED_TOKENS))
    )
    with chosen.counting():
        for rows in COUNTED_ROWS:
            parts = [(PromptPart(f"{rows} {row}", COUNTED_PROMPT),) for row in range(rows)]
            jobs = [WorkloadJob("counted", parts=part, shared_parts=0, output_tokens=COUNTED_TOKENS) for part in parts]
            core.run(_requests(jobs, loaded, case, f"counted-{rows}"))
    core.close()


@contextmanager
def _noting(steps: list[Step]) -> Iterator[None]:
    """Keep each step that is launched."""
    forward = StepLauncher.forward

    def noted(launcher: StepLauncher, scheduled: ScheduledStep) -> LaunchedStep:
        steps.append(scheduled.step)
        return forward(launcher, scheduled)

    with mock.patch.object(StepLauncher, "forward", noted):
        yield


def _requests(jobs: Sequence[WorkloadJob], loaded: LoadedModel, case: Case, run: str) -> list[CoreRequest]:
    requests = as_requests(jobs, TokenDraw(loaded.config.vocab_size, run), run)
    if case.greedy:
        return requests
    return [
        replace(request, sampling=replace(request.sampling, temperature=1.0, seed=seed))
        for seed, request in enumerate(requests)
    ]


if __name__ == "__main__":
    main()
