"""The matrix of tests/unit/engine/test_exactness.py on a GPU, in fp32 without TF32: also with graphs, with delays
between host and stream, and with prefixes that are long enough to be read once for a group."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import replace

import pytest
import torch

from tests.support.loading import load_model
from tests.support.oracle import ROOMY, Oracle, generate, options, tiny_oracle
from tests.support.tiny_models import FAMILIES, tiny_model
from tests.support.windows import WINDOWS, Released
from thothy_ai.engine.api.core import OnEvents
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.api.step import Step, StepMasks
from thothy_ai.engine.core import parts
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.execution.graphs import DecodeGraphs
from thothy_ai.engine.execution.runner import Runner
from thothy_ai.engine.execution.step_handle import StepHandle
from thothy_ai.engine.models.model import Model
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel

pytestmark = pytest.mark.gpu
AXES = ("preempted", "chunked", "overlap", "prefix_cache", "graphs")
GPU = torch.device("cuda", 0)
ROOMS = (1000, 300, 3000, 70, 150, 1000, 3)  # tokens of the steps for which memory is enough, one after another
MAX_DELAY = 2_000_000  # cycles: a millisecond
EVERY_POINT = ("llama", "qwen3", "gemma2")  # the whole matrix; it is the engine's and not the family's
OTHERS = tuple(family for family in FAMILIES if family not in EVERY_POINT)
SOME_POINTS = [(False, False, True, True, True), (True, True, True, True, True), (False, True, False, True, False)]


@pytest.fixture(scope="module", params=EVERY_POINT)
def oracle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return oracle_of(request.param, tmp_path_factory)


@pytest.fixture(scope="module", params=OTHERS)
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return oracle_of(request.param, tmp_path_factory)


def oracle_of(family: str, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    torch.backends.cuda.matmul.allow_tf32 = False
    return tiny_oracle(family, tmp_path_factory.mktemp(family), GPU)


@pytest.mark.parametrize(AXES, list(itertools.product([False, True], repeat=len(AXES))))
def test_greedy_tokens_equal_transformers(
    oracle: Oracle, *, preempted: bool, chunked: bool, overlap: bool, prefix_cache: bool, graphs: bool
) -> None:
    check(oracle, preempted, chunked, overlap, prefix_cache, graphs)


@pytest.mark.parametrize(AXES, SOME_POINTS)
def test_greedy_tokens_of_other_families_equal_transformers(
    other: Oracle, *, preempted: bool, chunked: bool, overlap: bool, prefix_cache: bool, graphs: bool
) -> None:
    check(other, preempted, chunked, overlap, prefix_cache, graphs)


def check(oracle: Oracle, preempted: bool, chunked: bool, overlap: bool, prefix_cache: bool, graphs: bool) -> None:
    stats = oracle.check(
        options(preempted=preempted, chunked=chunked, overlap=overlap, prefix_cache=prefix_cache, graphs=graphs),
    )
    assert (stats.scheduler.preemptions > 0) == preempted
    assert (stats.core.cached_tokens > 0) == prefix_cache
    assert stats.core.busy_seconds > 0


@pytest.fixture(scope="module", params=sorted(WINDOWS))
def windowed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    torch.backends.cuda.matmul.allow_tf32 = False
    family, overrides = WINDOWS[request.param]
    return tiny_oracle(family, tmp_path_factory.mktemp(family), GPU, **overrides)


@pytest.mark.parametrize(AXES, list(itertools.product([False, True], repeat=len(AXES))))
def test_greedy_tokens_equal_transformers_over_several_windows(
    windowed: Oracle, *, preempted: bool, chunked: bool, overlap: bool, prefix_cache: bool, graphs: bool
) -> None:
    released = Released()
    made = options(preempted=preempted, chunked=chunked, overlap=overlap, prefix_cache=prefix_cache, graphs=graphs)
    windowed.check(made, build=released.build)
    assert released.blocks


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("graphs", [False, True])
def test_delays_between_host_and_stream_change_nothing(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch, seed: int, *, graphs: bool
) -> None:
    draw = random.Random(seed)
    forward, sample = Runner.forward, Runner.sample

    def pause() -> None:
        torch.cuda._sleep(draw.randrange(MAX_DELAY))
        time.sleep(draw.choice([0, 0, 0.001]))

    def slow_forward(self: Runner, step: Step) -> StepHandle:
        pause()
        handle = forward(self, step)
        pause()
        return handle

    def slow_sample(self: Runner, handle: StepHandle, masks: StepMasks | None) -> None:
        sample(self, handle, masks)
        pause()

    monkeypatch.setattr(Runner, "forward", slow_forward)
    monkeypatch.setattr(Runner, "sample", slow_sample)
    oracle.check(options(preempted=True, chunked=False, overlap=True, prefix_cache=True, graphs=graphs))


PRESSED = {  # a roomy pool; one that preempts; a budget that chunks
    "roomy": {},
    "preempted": {"kv_tokens": 800},
    "chunked": {"token_budget": 37},
}


SHARED = {  # all of the context; the last 150 tokens, in some layers or in all, of which blocks come back early
    "llama": {},
    "mistral": {"sliding_window": 150},
    "gemma2": {"sliding_window": 150},
}


@pytest.fixture(scope="module", params=SHARED)
def siblings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """Prompts over two long sources, one of them cut short, and some that share nothing."""
    torch.backends.cuda.matmul.allow_tf32 = False
    made = tmp_path_factory.mktemp("siblings")
    folder = tiny_model(request.param, made, max_position_embeddings=512, **SHARED[request.param])
    loaded = load_model(folder, device=GPU, dtype=torch.float32)
    draw = random.Random(3)
    source, other = (tuple(draw.choices(range(131), k=count)) for count in (200, 150))
    prompts = tuple(
        front + tuple(draw.choices(range(131), k=draw.randint(1, 30)))
        for front in (source, source, source, other, other, (), (1,), source[:170], source)
    )
    return Oracle(loaded, prompts, generate(folder, prompts, 40, GPU))


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("pressure", PRESSED)
def test_groups_that_share_a_long_prefix(siblings: Oracle, pressure: str, *, overlap: bool, graphs: bool) -> None:
    grouped: list[tuple[int, ...]] = []

    def build(loaded: LoadedModel, options: EngineOptions, on_events: OnEvents) -> EngineCore:
        core = build_core(loaded, options, on_events)
        if pressure == "preempted":
            core._scheduler._lengths.observe("", 0, 1)  # what windows leave is known, and more would not be admitted
        arrange = core._scheduler._groups.arrange

        def noted(members):
            ordered, groups = arrange(members)
            grouped.append(tuple(group.size for group in groups))
            return ordered, groups

        core._scheduler._groups.arrange = noted
        return core

    sizes = {"block_size": 16, "kv_tokens": 4096, "max_context": 300, "max_rows": 12} | PRESSED[pressure]
    stats = siblings.check(replace(ROOMY, overlap=overlap, graphs=graphs, **sizes), build=build)
    assert (stats.scheduler.preemptions > 0) == (pressure == "preempted")
    assert max(map(sum, grouped)) >= 4
    assert len(set(grouped)) > 2  # members come and go


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
def test_steps_that_run_out_of_memory_run_in_parts(
    siblings: Oracle, monkeypatch: pytest.MonkeyPatch, *, overlap: bool, graphs: bool
) -> None:
    """The allocator's own error, amid the launches of a forward pass; the room is another each time. A decode step
    that is replayed has no launch but the graph's.
    """
    launches, rooms, faults = ((Model, "logits"), (DecodeGraphs, "replay")), itertools.cycle(ROOMS), []

    def hungry(self: Runner, step: Step) -> StepHandle:
        room = next(rooms)

        def starved(launch):
            def launched(*args: object) -> object:
                if step.num_tokens > room:
                    faults.append(step.num_tokens)
                    torch.empty(1 << 44, dtype=torch.uint8, device=GPU)
                return launch(*args)

            return launched

        with monkeypatch.context() as patch:
            for owner, name in launches:
                patch.setattr(owner, name, starved(getattr(owner, name)))
            return forward(self, step)

    forward = Runner.forward

    def build(loaded: LoadedModel, options: EngineOptions, on_events: OnEvents) -> EngineCore:
        core = build_core(loaded, options, on_events)  # and warmed up
        monkeypatch.setattr(Runner, "forward", hungry)
        return core

    monkeypatch.setattr(parts, "_CALM_STEPS", 2)
    made = replace(ROOMY, block_size=32, kv_tokens=4096, max_context=400, token_budget=2048, overlap=overlap)
    siblings.check(replace(made, graphs=graphs), build=build)
    assert len(faults) >= 5
