"""A device that lacks the memory for a step: the step runs in parts, and nothing else changes."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.support.arithmetic_model import ArithmeticModel, arithmetic_core, continuation
from tests.support.engine_driver import EngineDriver
from tests.support.oracle import Oracle, options, tiny_oracle
from tests.support.patience import PATIENCE
from thothy_ai.engine.api import FinishReason, SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.errors import EngineLostError
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.api.step import RowUpdates, Step, StepMasks
from thothy_ai.engine.core import parts
from thothy_ai.engine.core.parts import StepPart
from thothy_ai.engine.execution.memory import is_out_of_memory
from thothy_ai.engine.execution.runner import Runner
from thothy_ai.engine.execution.step_handle import StepHandle
from thothy_ai.engine.models.model import Model
from thothy_ai.engine.scheduling.sequence import Sequence
from thothy_ai.engine.scheduling.step_builder import ScheduledStep

CONFIG = EngineConfig(block_size=2, num_blocks=200, max_rows=6, token_budget=32, max_context=64)
PROMPTS = [
    [1, 2, 3, 4, 5, 6, 7],
    [1, 2, 3, 4, 5, 6, 7],
    [1, 2, 3, 4, 9],
    [8, 8],
    [5],
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2],
]


def no_room() -> torch.OutOfMemoryError:
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore of it")


def limit_tokens(
    monkeypatch: pytest.MonkeyPatch, model: type, most: Callable[[], int], *, late: bool = False
) -> list[int]:
    """The model runs out of memory above so many tokens, late: with their KV written; returns the sizes it ran."""
    plain, ran = model.forward, []

    def forward(self, tokens, *rest):
        fails = len(tokens.ids) > most()
        if fails and not late:
            raise no_room()
        hidden = plain(self, tokens, *rest)
        if fails:
            raise no_room()
        ran.append(len(tokens.ids))
        return hidden

    monkeypatch.setattr(model, "forward", forward)
    return ran


def requests(count: int = 12) -> list[CoreRequest]:
    sampling = SamplingParams(max_tokens=count, ignore_eos=True)
    return [CoreRequest(str(i), tuple(prompt), sampling) for i, prompt in enumerate(PROMPTS)]


def check(driver: EngineDriver, count: int = 12) -> None:
    """Every request has its tokens, and the seconds are conserved."""
    collected, stats = driver.run(requests(count)), driver.core.stats()
    for i, prompt in enumerate(PROMPTS):
        assert collected.tokens[str(i)] == continuation(prompt, count)
        assert collected.finished[str(i)].reason is FinishReason.LENGTH
    assert stats.core.attributed_seconds == pytest.approx(stats.core.busy_seconds)
    assert stats.core.output_tokens == count * len(PROMPTS)
    assert stats.blocks.used == 0


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("most", [1, 2, 3, 5, 16])
def test_too_large_a_step_runs_in_parts_with_the_same_tokens(overlap, most, late, monkeypatch, caplog):
    ran = limit_tokens(monkeypatch, ArithmeticModel, lambda: most, late=late)
    with EngineDriver(lambda on_events: arithmetic_core(replace(CONFIG, overlap=overlap), on_events)) as driver:
        check(driver)
    assert max(ran) <= most
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert any("6 members and 17 tokens ran out of memory: CUDA out of memory." in each.message for each in warnings)
    assert len(warnings) < 12, "the next steps are smaller"
    assert not any("\n" in each.message for each in warnings)


@pytest.mark.parametrize("overlap", [False, True])
def test_every_step_in_turn_may_run_out_of_memory(overlap, monkeypatch):
    """At each launch in turn, once: the first try fails, whatever is in the step."""
    launches = count_launches(monkeypatch)
    for fault in range(12):
        launches.restart(fault)
        with EngineDriver(lambda on_events: arithmetic_core(replace(CONFIG, overlap=overlap), on_events)) as driver:
            check(driver)
        assert launches.failed == 1


class Launches:
    """Counts the launches of a runner, and fails one of them after its forward, as if it had not the room."""

    def __init__(self) -> None:
        self.restart(-1)

    def restart(self, fault: int) -> None:
        self.seen, self.fault, self.failed = 0, fault, 0

    def launched(self) -> None:
        self.seen += 1
        if self.seen - 1 == self.fault:
            self.failed += 1
            raise no_room()


def count_launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    launches, plain = Launches(), Runner.forward

    def forward(self: Runner, step: Step) -> StepHandle:
        handle = plain(self, step)
        launches.launched()
        return handle

    monkeypatch.setattr(Runner, "forward", forward)
    return launches


def test_a_sibling_reads_what_its_elder_writes_in_the_same_step(monkeypatch):
    """The elder's prompt has many tokens and the sibling's all but one of them cached: single tokens come first."""
    elder, sibling = tuple(range(1, 10)), (*range(1, 9), 30)
    ran = limit_tokens(monkeypatch, ArithmeticModel, lambda: 5)
    with EngineDriver(lambda on_events: arithmetic_core(CONFIG, on_events)) as driver:
        sampling = SamplingParams(max_tokens=3)
        collected = driver.run([CoreRequest("elder", elder, sampling), CoreRequest("sibling", sibling, sampling)])
    assert collected.finished["sibling"].usage.cached_tokens == 8
    assert collected.tokens["elder"] == continuation(list(elder), 3)
    assert collected.tokens["sibling"] == continuation(list(sibling), 3)
    assert ran[:2] == [5, 5], "one step of ten tokens, the elder's first"


@pytest.mark.parametrize("overlap", [False, True])
def test_a_single_token_has_another_try_and_then_ends_the_engine(overlap, monkeypatch):
    ran = limit_tokens(monkeypatch, ArithmeticModel, lambda: 0)
    with EngineDriver(lambda on_events: arithmetic_core(replace(CONFIG, overlap=overlap), on_events)) as driver:
        driver.submit(requests()[0])
        driver.core.start()
        driver.gather()
        assert driver.core.join(PATIENCE)
    assert not ran
    assert driver.core.failure is not None
    assert driver.core.failure.members == ("0",)
    assert isinstance(driver.collected.finished["0"].error, EngineLostError)


def test_other_errors_end_the_engine_at_once(monkeypatch):
    tried = []

    def forward(self: Runner, step: Step) -> StepHandle:
        tried.append(step)
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(Runner, "forward", forward)
    with EngineDriver(lambda on_events: arithmetic_core(CONFIG, on_events)) as driver:
        driver.submit(requests()[0])
        driver.core.start()
        driver.gather()
        assert driver.core.join(PATIENCE)
    assert len(tried) == 1
    assert driver.core.failure is not None


@pytest.mark.parametrize("overlap", [False, True])
def test_sampling_has_another_try(overlap, monkeypatch):
    plain, faults = Runner.sample, itertools.cycle([True, False, False])

    def sample(self: Runner, handle: StepHandle, masks: StepMasks | None) -> None:
        if next(faults):
            raise RuntimeError("CUDA error: out of memory")
        plain(self, handle, masks)

    monkeypatch.setattr(Runner, "sample", sample)
    with EngineDriver(lambda on_events: arithmetic_core(replace(CONFIG, overlap=overlap), on_events)) as driver:
        check(driver)


def test_later_steps_are_smaller_and_grow_again(monkeypatch):
    room = [8]
    ran = limit_tokens(monkeypatch, ArithmeticModel, lambda: room[0])
    with EngineDriver(lambda on_events: arithmetic_core(CONFIG, on_events)) as driver:
        check(driver)
        assert driver.core._launcher.token_limit == 5, "half of half of 17"
        assert max(ran) <= 8
        assert max(ran[4:]) <= 5
        monkeypatch.setattr(parts, "_CALM_STEPS", 3)
        room[0] = 100
        driver.collected.finished.clear()
        driver.collected.tokens.clear()
        for request in requests():
            driver.submit(replace(request, id="again " + request.id))
        while len(driver.collected.finished) < len(PROMPTS):
            driver.gather()
        assert driver.core._launcher.token_limit == CONFIG.token_budget


def test_a_sequence_may_have_several_members() -> None:
    """Tokens of one row in single-token members, which stay in order."""
    one, other = (Sequence(request, 1) for request in requests()[:2])
    rows, starts, counts = (np.array(values, np.int32) for values in ([4, 7, 7, 7], [9, 2, 3, 4], [1, 1, 1, 1]))
    samples = np.array([True, False, False, True])
    scheduled = ScheduledStep(
        Step(rows, starts, counts, samples), (one, other, other, other), samples, (), planned=[other, one]
    )
    assert scheduled.order.tolist() == [1, 2, 3, 0]
    first, second = StepPart(scheduled.step, scheduled.order).halves()
    assert (first.step.rows.tolist(), first.step.starts.tolist()) == ([7, 7], [2, 3])
    assert (second.step.rows.tolist(), second.step.starts.tolist()) == ([7, 4], [4, 9])
    assert (first.step.samples.tolist(), second.step.samples.tolist()) == ([False, False], [True, True])


def random_part(seed: int) -> StepPart:
    """Members as a builder makes them: those with a single token first, planned in any order."""
    random = np.random.default_rng(seed)
    counts = np.sort(random.integers(1, 9, 7)).astype(np.int32)
    updates = RowUpdates(*(np.array(values, np.int32) for values in ([0], [0], [2], [4, 5])))
    step = Step(
        np.arange(7, dtype=np.int32), random.integers(0, 50, 7).astype(np.int32), counts, random.random(7) < 0.7,
        new_tokens=updates,
    )  # fmt: skip
    return StepPart(step, random.permutation(7).astype(np.int32))


def leaves(part: StepPart) -> Iterator[StepPart]:
    if part.step.num_tokens == 1:
        yield part
    else:
        for half in part.halves():
            yield from leaves(half)


@pytest.mark.parametrize("seed", range(20))
def test_halves_are_the_step_in_planning_order(seed: int) -> None:
    whole = random_part(seed)
    first, second = whole.halves()
    assert abs(first.step.num_tokens - second.step.num_tokens) <= 1
    for half in (first, second):
        counts = half.step.counts.tolist()
        assert counts == [1] * counts.count(1) + [count for count in counts if count > 1], "single tokens first"
    assert (len(first.step.new_tokens.rows), len(second.step.new_tokens.rows)) == (1, 0)
    step = whole.step
    tokens = [
        (row, start + place, bool(samples and place == count - 1))
        for row, start, count, samples in (
            (step.rows[i], step.starts[i], step.counts[i], step.samples[i]) for i in whole.order
        )
        for place in range(count)
    ]
    singles = [(leaf.step.rows[0], leaf.step.starts[0], bool(leaf.step.samples[0])) for leaf in leaves(whole)]
    assert singles == tokens


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (no_room(), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            True,
        ),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_is_out_of_memory(error: Exception, *, is_one: bool) -> None:
    assert is_out_of_memory(error) == is_one


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return tiny_oracle("qwen3", tmp_path_factory.mktemp("parts"), torch.device("cpu"))


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("preempted", [False, True])
def test_tokens_stay_those_of_transformers(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch, *, preempted: bool, overlap: bool
) -> None:
    rooms = itertools.cycle([100, 9, 100, 4, 40, 3, 100])
    ran = limit_tokens(monkeypatch, Model, lambda: next(rooms))
    monkeypatch.setattr(parts, "_CALM_STEPS", 1)
    oracle.check(options(preempted=preempted, chunked=False, overlap=overlap, prefix_cache=True))
    assert len(ran) > 24, "steps ran in parts"
