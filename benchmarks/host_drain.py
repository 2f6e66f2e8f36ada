"""What a drain of real jobs costs the host, without a device: the core's loop over a runner that draws random tokens.

Jobs of the kinds, with their prompts, schemas and limits, run through scheduler, grammars and loop as on a GPU. The
runner draws any allowed token, as with random weights. A job without a schema has the length it had with one. "path" is
the host's time from having read a step to having launched the next but one: a device waits where its step takes less.
Seconds of the device are predicted (`device_model`).

    python -m benchmarks.host_drain --tokenizer FOLDER [--jobs 400] [--kind hook] [--parameters N] [--profile]
"""

from __future__ import annotations

import cProfile
import json
import pstats
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from benchmarks.command_line import CommandLine, positive
from benchmarks.device_model import QWEN, Device
from benchmarks.results import table
from thothy_ai.demo.backlog import backlog
from thothy_ai.engine.api import EngineInfo, SamplingParams
from thothy_ai.engine.api.core import CoreRequest, Event, FinishedEvent, RefusedEvent, TokenEvent
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.api.step import Step, StepMasks, StepResult
from thothy_ai.engine.core.accounting import StepCost
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.execution.mask_table import MaskTable
from thothy_ai.engine.execution.memory import MemoryGauge
from thothy_ai.engine.execution.runner import Runner
from thothy_ai.engine.grammar.compiler import Grammar, GrammarCompiler
from thothy_ai.engine.grammar.memory import MaskMemory
from thothy_ai.engine.process.resident import keep_what_is_loaded
from thothy_ai.engine.text.model_text import core_tokenizer
from thothy_ai.jobs import Call, Context, Request, registry

EOS = 2
_DRAWS = 24


class _Now:
    """A timer of a device that takes no time."""

    def seconds(self) -> float:
        return 0.0


@dataclass(slots=True)
class Handle:
    """A step that has been launched."""

    step: Step
    was_read: Callable[[], None]
    tokens: list[int] = field(default_factory=list)
    replayed: bool = True
    timer: _Now = field(default_factory=_Now)

    def read(self) -> StepResult:
        """The tokens."""
        self.was_read()
        return StepResult(self.tokens, 1e-3, self.replayed)


class RandomRunner:
    """Draws an allowed token for each sampling member; notes what it took of the host, and the steps."""

    def __init__(self, vocab_size: int, device: Device, masks: MaskTable) -> None:
        self._vocab, self._device, self._masks = vocab_size, device, masks
        self._rng = np.random.default_rng(0)
        self.took = 0.0  # wall clock
        self.cpu = 0.0
        self.path = 0.0  # from having read a step to having launched the next but one, without what the runner took
        self._read_at: float | None = None
        self.device_seconds: list[float] = []
        self.members: list[int] = []

    def forward(self, step: Step) -> Handle:
        """No forward pass."""
        with self._timed():
            self.device_seconds.append(self._device.parts(step).total())
            self.members.append(step.num_members)
        if self._read_at is not None:
            self.path += time.perf_counter() - self.took - self._read_at
            self._read_at = None
        return Handle(step, self._was_read)

    def _was_read(self) -> None:
        self._read_at = time.perf_counter() - self.took

    def sample(self, handle: Handle, masks: StepMasks | None) -> None:
        """Any allowed token, all equally likely."""
        with self._timed():
            rows = handle.step.num_sampling
            if masks is None:
                handle.tokens = self._rng.integers(300, self._vocab, rows).tolist()
            else:
                handle.tokens = self._drawn(self._masks.rows(masks).numpy().view(np.uint32))

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began, cpu = time.perf_counter(), time.thread_time()
        yield
        self.took += time.perf_counter() - began
        self.cpu += time.thread_time() - cpu

    def _drawn(self, masks: NDArray[np.uint32]) -> list[int]:
        draws = self._rng.integers(0, self._vocab, (len(masks), _DRAWS))
        words = np.take_along_axis(masks, draws >> 5, axis=1)
        allowed = (words >> (draws & 31).astype(np.uint32)) & 1 == 1
        first, found = allowed.argmax(axis=1), allowed.any(axis=1)
        tokens = draws[np.arange(len(masks)), first]
        for row in np.flatnonzero(~found):
            bits = np.flatnonzero(np.unpackbits(masks[row].view(np.uint8), bitorder="little"))
            tokens[row] = self._rng.choice(bits)
        return [int(token) for token in tokens]


@dataclass(frozen=True)
class Drained:
    """`host`: seconds of the core's thread, less the runner's; `cpu`: of all threads."""

    name: str
    host: float
    cpu: float
    core_cpu: float
    path: float
    masks: float
    steps: int
    rows: float
    device: float
    outputs: dict[str, list[int]]  # tokens by request

    @property
    def tokens(self) -> int:
        """Of all outputs."""
        return sum(map(len, self.outputs.values()))

    def cells(self) -> tuple[str, ...]:
        per_step = [
            1e3 * value / self.steps
            for value in (self.host, self.path, self.core_cpu, self.masks, self.cpu, self.device)
        ]
        each = 1e6 * self.host / self.tokens, 1e6 * self.cpu / self.tokens
        return (self.name, f"{self.tokens}", f"{self.steps}", f"{self.rows:.0f}",
                *(f"{value:.2f}" for value in per_step), *(f"{value:.0f}" for value in each))  # fmt: skip


class Host:
    """A core over a `RandomRunner`, and the thread that compiles schemas."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, rows: int, context: Context) -> None:
        self._tokenizer, self._size, self._context = tokenizer, len(tokenizer), context
        self.compiler = GrammarCompiler(core_tokenizer(tokenizer), self._size, [EOS])
        self._rows = rows
        self._remembered = MaskMemory(self._size), MaskTable(rows, self._size, torch.device("cpu"))

    def drain(self, name: str, requests: Sequence[CoreRequest], profile: bool = False) -> Drained:
        """Run them all in a new core, which remembers the masks of those before."""
        memory, table = self._remembered
        runner = RandomRunner(self._size, QWEN, table)
        events: queue.SimpleQueue[list[Event]] = queue.SimpleQueue()
        core = self._core(runner, events)
        core._masks = memory
        if profile:
            _profiled(core)
        grammars = [self._grammar(request) for request in requests]
        for request, grammar in zip(requests, grammars, strict=True):
            core.submit(request, grammar)
        clock = _CoreCpu(core)
        began, cpu = time.perf_counter(), time.process_time()
        core.start()
        outputs = _outputs(events, len(requests))
        took, used = time.perf_counter() - began, time.process_time() - cpu
        stats = core.stats().core
        core.stop()
        core.join()
        return Drained(
            name=name,
            host=took - runner.took,
            cpu=used - runner.cpu,
            core_cpu=clock.seconds - runner.cpu,
            path=runner.path,
            masks=stats.mask_seconds,
            steps=len(runner.members),
            rows=float(np.mean(runner.members)),
            device=sum(runner.device_seconds),
            outputs=outputs,
        )

    def _core(self, runner: RandomRunner, events: queue.SimpleQueue[list[Event]]) -> EngineCore:
        config = EngineConfig(32, QWEN.pool_tokens // 32, self._rows, 8192, 8192, group_rows=8, graphs=True)
        info = EngineInfo("", "", "", "", 32, config.num_blocks, 8192, 0.0)
        cost = StepCost(1e-9, 1e-9, 1e-12, 1e-12)
        gauge = MemoryGauge(torch.device("cpu"), 0)
        stand_in: Runner = runner  # type: ignore[assignment]
        return EngineCore(
            stand_in, config, info, cost, gauge, vocab_size=self._size, eos=frozenset({EOS}), on_events=events.put
        )

    def _grammar(self, request: CoreRequest) -> Grammar | None:
        if request.schema is None:
            return None
        grammar = self.compiler.compile(request.schema)
        grammar.limit(min(request.sampling.max_tokens, 8192 - len(request.prompt)))
        return grammar

    def requests(self, jobs: Sequence[Request]) -> list[CoreRequest]:
        """The first calls of jobs, as the frontend would send them."""
        calls = [each for job in jobs for each in first_calls(job, self._context)]
        return [self._request(f"{number}", *each) for number, each in enumerate(calls)]

    def _request(self, name: str, kind: str, call: Call) -> CoreRequest:
        texts = [self._tokenizer.encode(message.content, add_special_tokens=False) for message in call.messages]
        sampling = SamplingParams(max_tokens=call.sampling.max_tokens)
        prompt = tuple(token for text in texts for token in text)
        return CoreRequest(name, prompt, sampling, profile=f"{kind}/{call.step}", schema=json.dumps(call.schema))


def first_calls(job: Request, context: Context) -> Iterator[tuple[str, Call]]:
    """The calls that a job's plan begins with, each with the job's kind."""
    kind = registry.kind_of(job)
    try:
        calls = next(kind.plan(job, context))
    except StopIteration:
        return
    yield from ((kind.name, call) for call in calls)


class _CoreCpu:
    """CPU seconds of a core's thread, as of its last step."""

    def __init__(self, core: EngineCore) -> None:
        self.seconds = 0.0
        publish = core._publish

        def publishing() -> None:
            self.seconds = time.thread_time()
            publish()

        core._publish = publishing  # type: ignore[method-assign]


def _profiled(core: EngineCore) -> None:
    run, profiler = core._run, cProfile.Profile()

    def profiled() -> None:
        profiler.enable()
        run()
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(45)

    core._thread = threading.Thread(target=profiled, daemon=True)


def _outputs(events: queue.SimpleQueue[list[Event]], left: int) -> dict[str, list[int]]:
    outputs: dict[str, list[int]] = {}
    while left:
        for event in events.get():
            assert not isinstance(event, RefusedEvent), event
            if isinstance(event, TokenEvent):
                outputs.setdefault(event.id, []).extend(event.tokens)
            if isinstance(event, FinishedEvent):
                assert event.error is None, event.error
                left -= 1
    return outputs


def _bare(requests: Sequence[CoreRequest], outputs: dict[str, list[int]]) -> list[CoreRequest]:
    return [
        replace(
            request,
            schema=None,
            sampling=replace(request.sampling, max_tokens=len(outputs[request.id]), ignore_eos=True),
        )
        for request in requests
    ]


HEADER = (
    "run", "tokens", "steps", "rows", "host ms", "path ms", "core's CPU ms", "masks ms", "CPU ms", "H200 ms",
    "host us per token", "CPU us per token",
)  # fmt: skip


def main() -> None:
    """Print a table for each workload."""
    parser = CommandLine("host_drain", __doc__)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--jobs", type=positive(int), default=400)
    parser.add_argument("--rows", type=positive(int), default=1024)
    parser.add_argument("--kind", nargs="*", help="mixed, or a kind's name")
    parser.add_argument(
        "--parameters", type=positive(int), default=0, help="of the model that is asked; default: a large one"
    )
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)  # whose time is the runner's
    keep_what_is_loaded()  # as the engine's process does, whose collector rarely runs
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(options.tokenizer / "tokenizer.json"))
    host = Host(tokenizer, options.rows, Context(parameters=options.parameters))
    kinds = options.kind or ["mixed", "hook", "trend_summary", "translation", "report_section"]
    rows = []
    for kind in kinds:
        requests = host.requests(backlog(options.jobs, 0, None if kind == "mixed" else kind))
        first = host.drain(f"{kind}, first", requests)
        again = host.drain(f"{kind}, again", requests, options.profile)
        bare = host.drain(f"{kind}, no schemas", _bare(requests, first.outputs), options.profile)
        rows += [run.cells() for run in (first, again, bare)]
        print(table(HEADER, rows[-3:]), flush=True)


if __name__ == "__main__":
    main()
