"""A second runner that gets only the bytes of each step chooses the same tokens, as a second GPU would.

Groups only save reads: the reference does without, and tests/gpu has engines that use them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pytest
import torch

from tests.support.constrained import DRAWS, GREEDY, SCRIPTS, VOCAB, Slots
from tests.support.engine_driver import EngineDriver, GrammarRequest
from tests.support.loading import load_model
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api import EngineInfo, EngineStats, LogitBias, SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.api.step import (
    BANNED,
    FOREVER,
    NO_COPIES,
    NO_GROUPS,
    NO_ROWS,
    NO_UPDATES,
    NOT_KEPT,
    Groups,
    RowBiases,
    RowUpdates,
    Start,
    StartedRows,
    StateCopies,
    Step,
    StepMasks,
)
from thothy_ai.engine.core.accounting import StepCost
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.execution.memory import MemoryGauge
from thothy_ai.engine.execution.runner import Runner
from thothy_ai.engine.execution.step_handle import StepHandle
from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.weights.loader import LoadedModel
from thothy_ai.kernels.paged import AttentionShape

CPU = torch.device("cpu")
# Prompts of 144 tokens in common are chunked, shared and grouped; what all sequences come to exceeds the pool.
CONFIG = EngineConfig(
    block_size=16, num_blocks=32, max_rows=8, token_budget=48, max_context=240, overlap=True, group_rows=4
)


@dataclass
class Recorded:
    """One step as it travels, and the tokens that came back."""

    step: bytes
    masks: StepMasks | None = None
    tokens: list[int] = field(default_factory=list)


class RecordingRunner(Runner):
    """Keeps the bytes of each step that it runs."""

    steps: list[Recorded]

    def forward(self, step: Step) -> StepHandle:
        self.steps = [*getattr(self, "steps", []), Recorded(step.to_bytes())]
        return super().forward(step)

    def sample(self, handle: StepHandle, masks: StepMasks | None) -> None:
        super().sample(handle, masks)
        self.steps[-1].masks = masks
        self.steps[-1].tokens = handle.read().tokens


def runner_of(kind: type[Runner], loaded: LoadedModel, config: EngineConfig) -> Runner:
    """A runner with rows and a KV cache of its own."""
    model, sizes = loaded.model, loaded.config
    shape = AttentionShape(
        config.max_rows, sizes.num_heads, sizes.num_kv_heads, sizes.head_dim, config.block_size, config.max_context,
        model.dtype, model.dtype, CPU,
    )  # fmt: skip
    slots = config.state_slots
    cache = KVCache.allocate(sizes, config.num_blocks, config.block_size, model.dtype, CPU, slots=slots)
    return kind(model, cache, model.operations.attention(shape), config, CPU)


def requests() -> Iterator[CoreRequest]:
    """Siblings over one source, drawn in all ways, before and after short ones under grammars."""
    generator = torch.Generator().manual_seed(5)

    def draw(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(0, VOCAB, (count,), generator=generator).tolist())

    source = draw(144)
    for place, sampling in enumerate(DRAWS[:5]):
        yield CoreRequest(f"draw {place}", source + draw(3 + place), replace(sampling, max_tokens=70, ignore_eos=True))
    for place, script in enumerate(SCRIPTS):
        yield GrammarRequest(f"script {place}", draw(20 + 5 * place), GREEDY, grammar=Slots(script))
    for place in range(3):
        yield CoreRequest(f"long {place}", draw(30), SamplingParams(max_tokens=90, ignore_eos=True))


def recorded(loaded: LoadedModel, config: EngineConfig) -> tuple[list[Recorded], EngineStats]:
    """The steps of a run of all requests, and the engine's statistics."""
    runner = runner_of(RecordingRunner, loaded, config)
    info = EngineInfo("session", "tiny", "cpu", "float32", config.block_size, config.num_blocks, 0, 0.0)
    cost, memory = StepCost(1.0, 1.0, 0.1, 0.01), MemoryGauge(CPU, 0)

    def build(on_events):
        return EngineCore(
            runner, config, info, cost, memory, vocab_size=VOCAB, eos=frozenset(), on_events=on_events
        )  # fmt: skip

    with EngineDriver(build) as driver:
        collected = driver.run(requests())
        stats = driver.core.stats()
    assert not [event.error for event in collected.finished.values() if event.error]
    return runner.steps, stats


@pytest.fixture(scope="module", params=["qwen3", "qwen3_next"])
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tiny_model(request.param, tmp_path_factory.mktemp("replay"))
    return load_model(folder, device=CPU, dtype=torch.float32)


def is_decode(step: Step) -> bool:
    return step.num_tokens == step.num_members


@pytest.mark.parametrize("overlap", [False, True])
def test_a_second_runner_chooses_the_same_tokens(loaded: LoadedModel, *, overlap: bool) -> None:
    recurrent = loaded.config.recurrent
    config = replace(CONFIG, overlap=overlap, recurrent=recurrent, kept_states=2 if recurrent else 0)
    steps, stats = recorded(loaded, config)
    check_mixed(steps, stats)

    def padded(step: Step) -> Step:
        return step.padded_to(config.max_rows, config.max_rows) if is_decode(step) else step

    assert first_difference(loaded, config, steps, lambda step: step) is None
    assert first_difference(loaded, config, steps, padded) is None
    changes = [{"started": NO_ROWS}, {"new_tokens": NO_UPDATES}, {"new_blocks": NO_UPDATES}]
    for missing in (*changes, *([{"restored": NO_COPIES}, {"keeps": NO_UPDATES.rows}] if recurrent else [])):
        found = first_difference(loaded, config, steps, partial(replace, **missing))
        assert found is not None, f"without {', '.join(missing)}"


def first_difference(
    loaded: LoadedModel, config: EngineConfig, records: list[Recorded], change: Callable[[Step], Step]
) -> int | None:
    """The first step for which a second runner chooses other tokens than were recorded."""
    second = runner_of(Runner, loaded, config)
    for number, record in enumerate(records):
        step = Step.from_bytes(record.step)
        assert step.to_bytes() == record.step
        handle = second.forward(change(step))
        second.sample(handle, record.masks)
        if handle.read().tokens != record.tokens:
            return number
    return None


def check_mixed(records: list[Recorded], stats: EngineStats) -> None:
    """Everything that a step can bring occurred."""
    steps = [Step.from_bytes(record.step) for record in records]
    assert any((step.counts[~step.samples] > 1).any() for step in steps), "a chunk of a prompt"
    assert any(is_decode(step) for step in steps), "decode alone"
    assert any(0 < step.counts.tolist().count(1) < step.num_members for step in steps), "decode beside prefill"
    assert any(step.starts[np.isin(step.rows, step.started.rows)].any() for step in steps), "a prefix hit"
    assert stats.core.cached_tokens > 0
    assert stats.scheduler.preemptions > 0
    rows_started = sum(len(step.started.rows) for step in steps)
    assert rows_started == stats.core.requests_finished - all_forced() + stats.scheduler.preemptions
    assert any((~np.isin(step.new_tokens.rows, step.started.rows)).any() for step in steps), "forced tokens"
    assert any((~np.isin(step.new_blocks.rows, step.started.rows)).any() for step in steps), "growth"
    assert any(record.masks is not None for record in records)
    assert any(record.masks is None and record.tokens for record in records)
    grouped = {tuple(step.groups.sizes.tolist()) for step in steps}
    assert len(grouped) > 2, "groups come and go"
    assert any(is_decode(step) and len(step.groups.sizes) and step.num_members < CONFIG.max_rows for step in steps)


def all_forced() -> int:
    """Requests that end before any step: their grammar leaves no choice."""
    return sum(all(len(slot) == 1 for slot in script) for script in SCRIPTS)


def test_a_step_survives_a_round_trip() -> None:
    params = SamplingParams(temperature=0.7, top_k=2**40, top_p=0.9, min_p=0.1, repetition_penalty=1.1)
    columns = [np.array(values, np.int32) for values in ([3, 1], [7, 0], [1, 4])]
    groups = Groups(*(np.array([value], np.int32) for value in (0, 2, 128)))
    tokens = RowUpdates(*(np.array(values, np.int32) for values in ([1, 3], [0, 5], [3, 1], [9, 8, 7, 6])))
    asking = SamplingParams(logit_bias=(LogitBias(4, -1.5),), min_tokens=3, frequency_penalty=0.5, logprobs=2)
    starts = [Start(1, params, 2**63 - 1), Start(4, asking, 5, 10, frozenset({8, 6}))]
    step = Step(
        *columns,
        np.array([True, False]),
        groups,
        StartedRows.of(starts),
        tokens,
        biases=RowBiases.of(starts),
        restored=StateCopies.of({3: 9}),
        keeps=np.array([10, NOT_KEPT], np.int32),
        dropped=np.array([0, 64], np.int32),
        weighed=np.array([5, 9, 2], np.int32),
    )
    again = Step.from_bytes(step.to_bytes())
    assert again.to_bytes() == step.to_bytes()
    assert (again.rows.tolist(), again.samples.tolist(), again.num_tokens) == ([3, 1], [True, False], 5)
    assert again.started.seeds.tolist() == [2**63 - 1, 5]
    assert again.started.temperatures.tolist() == [0.7, 0.0]
    assert (again.started.logprobs.tolist(), again.started.frequency_penalties.tolist()) == ([-1, 2], [0.0, 0.5])
    entries = list(zip(*(column.tolist() for column in again.biases), strict=True))
    assert entries == [(4, 4, FOREVER, -1.5), (4, 6, 13, BANNED), (4, 8, 13, BANNED)]
    assert again.new_tokens.values.tolist() == [9, 8, 7, 6]
    assert [column.tolist() for column in (*again.restored, again.keeps)] == [[9], [3], [10, NOT_KEPT]]
    assert (again.dropped.tolist(), again.places.tolist(), again.weighed.tolist()) == ([0, 64], [7, -64], [5, 9, 2])
    assert (again.groups.shared.tolist(), len(again.new_blocks.rows)) == ([128], 0)
    with pytest.raises(ValueError, match="buffer"):
        Step.from_bytes(step.to_bytes()[:-1])


def test_masks_survive_a_round_trip() -> None:
    masks = StepMasks(
        np.array([5, 0], np.int32), np.array([[1, -1], [7, 2**31 - 1], [0, 3]], np.int32), np.array([9, 8, 4], np.int32)
    )
    again = StepMasks.from_bytes(masks.to_bytes())
    assert [column.tolist() for column in again] == [column.tolist() for column in masks]
    assert [
        len(column)
        for column in StepMasks.from_bytes(masks._replace(new=masks.new[:0], targets=masks.targets[:0]).to_bytes())
    ] == [2, 0, 0]
    with pytest.raises(ValueError, match="buffer"):
        StepMasks.from_bytes(masks.to_bytes()[:-1])


def test_padding_is_a_step_too() -> None:
    padding = Step.of_padding(9, [1, 5])
    assert (padding.rows.tolist(), padding.counts.tolist(), padding.num_sampling) == ([9, 9], [1, 5], 0)
    assert (padding.groups, padding.started, padding.new_tokens) == (NO_GROUPS, NO_ROWS, NO_UPDATES)
    padded = Step.of_padding(2, [1]).padded_to(3, 9)
    assert (padded.rows.tolist(), padded.counts.tolist()) == ([2, 9, 9], [1, 1, 1])
    assert padded.padded_to(3, 9) is padded
    dropping = replace(Step.of_padding(2, [1]), starts=np.array([80], np.int32), dropped=np.array([64], np.int32))
    assert dropping.padded_to(3, 9).places.tolist() == [16, 0, 0]
