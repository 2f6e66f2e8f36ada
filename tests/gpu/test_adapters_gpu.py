"""Adapters on a GPU: tokens of merged weights in fp32, also under graphs and with copies beside steps; an fp8 base."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.support.adapter_oracle import AdapterOracle, adapter_oracle
from tests.support.engine_driver import EngineDriver
from tests.support.loading import load_model
from tests.support.oracle import NEW_TOKENS, options
from tests.support.patience import PATIENCE
from thothy_ai.engine.api import AdapterInfo, SamplingParams
from thothy_ai.engine.api.core import CoreRequest, Event, OnEvents, TokenEvent
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.models.layers.adapted import AdaptedLinear, AdapterBank, HostWeights
from thothy_ai.engine.models.layers.linear import DenseLinear
from thothy_ai.engine.models.layers.mlp import GeGLU, SwiGLU
from thothy_ai.engine.process.build import build_core
from thothy_ai.kernels.operations import operations_for

pytestmark = pytest.mark.gpu
GPU = torch.device("cuda", 0)
AXES = ("preempted", "chunked", "overlap", "prefix_cache", "graphs")
MIXED = ("", "one", "two", "two", "one", "")


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> AdapterOracle:
    torch.backends.cuda.matmul.allow_tf32 = False
    return adapter_oracle("llama", tmp_path_factory.mktemp("llama"), device=GPU)


@pytest.mark.parametrize(AXES, list(itertools.product([False, True], repeat=len(AXES))))
def test_tokens_equal_those_of_merged_weights(
    oracle: AdapterOracle, *, preempted: bool, chunked: bool, overlap: bool, prefix_cache: bool, graphs: bool
) -> None:
    point = options(preempted=preempted, chunked=chunked, overlap=overlap, prefix_cache=prefix_cache, graphs=graphs)
    stats = oracle.check(point, MIXED)
    assert stats.adapters.copies == 2
    assert (stats.core.replayed_steps > 0) == graphs
    oracle.check(point, ("",))  # steps without adapters, beside those that are loaded


@pytest.mark.parametrize("family", ["qwen3", "gemma3_text", "qwen3_moe", "qwen3_next", "falcon_h1", "cohere"])
def test_families(family: str, tmp_path: Path) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    oracle = adapter_oracle(family, tmp_path, device=GPU)
    oracle.check(options(preempted=False, chunked=True, overlap=True, prefix_cache=True, graphs=True), MIXED)


@pytest.mark.parametrize("kind", [SwiGLU, GeGLU])
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("count", [1, 64, 65, 1100])
def test_layers_of_few_and_of_many_tokens(count: int, kind: type[SwiGLU | GeGLU], *, graph: bool) -> None:
    """Up to 64 tokens, adapters are computed on a second stream, and from 1,024 on in larger tiles."""
    torch.backends.cuda.matmul.allow_tf32 = False
    results = [mlp_with_adapters(torch.device("cpu"), count, kind), mlp_with_adapters(GPU, count, kind, graph=graph)]
    torch.testing.assert_close(results[1].cpu(), results[0], atol=1e-4, rtol=1e-4)


def mlp_with_adapters(device: torch.device, count: int, kind: type[SwiGLU | GeGLU], *, graph: bool = False) -> Tensor:
    """The outputs of an MLP for tokens with two adapters and without any. `graph`: captured, and replayed twice."""
    generator, operations = torch.Generator().manual_seed(5), operations_for(device)
    bank = AdapterBank(operations)

    def adapted(outputs: dict[str, int], inputs: int) -> AdaptedLinear:
        weight = torch.randn(sum(outputs.values()), inputs, generator=generator) * inputs**-0.5
        return bank.wrapped(DenseLinear(weight.to(device), None, shared=False), outputs, inputs, {})

    mlp = kind(adapted({"gate": 160, "up": 160}, 96), adapted({"down": 96}, 160))
    bank.allocate(2, 16, count, torch.float32, device)
    for slot in range(2):
        numbers = torch.randn(bank.numbers_per_slot(16), generator=generator) * 0.1
        bank.fill(slot, HostWeights(numbers, torch.tensor([16, 16], dtype=torch.int32)))
    bank.buffer.copy_(torch.arange(count) % 3)
    hidden = torch.randn(count, 96, generator=generator).to(device)

    def run() -> Tensor:
        bank.begin(count)
        return mlp(hidden, operations)

    made = run()
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            made = run()
        for _ in range(2):
            made.zero_()
            captured.replay()
    bank.end()
    return made


def test_more_adapters_than_slots(tmp_path: Path) -> None:
    """Copies overwrite slots that earlier steps have read."""
    torch.backends.cuda.matmul.allow_tf32 = False
    oracle = adapter_oracle("llama", tmp_path, {str(number): {"r": 4} for number in range(7)}, device=GPU)
    roomy: EngineOptions = options(preempted=False, chunked=False, overlap=True, prefix_cache=True, graphs=True)
    for _ in range(5):
        stats = oracle.check(replace(roomy, adapter_slots=2, max_rows=2), tuple("0123456"))
        assert stats.adapters.copies >= 7


@pytest.mark.parametrize("ranks", [{"one": {"r": 1}, "two": {"r": 256}}, {"one": {"r": 17}, "two": {"r": 64}}], ids=str)
def test_ranks(ranks: dict[str, dict[str, int]], tmp_path: Path) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    oracle = adapter_oracle("llama", tmp_path, ranks, device=GPU)
    point = options(preempted=False, chunked=True, overlap=True, prefix_cache=True, graphs=True)
    oracle.check(replace(point, adapter_rank=256), MIXED)


def finish(driver: EngineDriver, requests: Sequence[CoreRequest]) -> None:
    while not driver.collected.finished.keys() >= {request.id for request in requests}:
        driver.gather()


@pytest.mark.parametrize("chunked", [False, True])
def test_the_first_adapter_comes_while_steps_are_in_flight(oracle: AdapterOracle, *, chunked: bool) -> None:
    """Room is made, and graphs are captured, between two steps, the last of which is not read yet."""
    point = options(preempted=False, chunked=chunked, overlap=True, prefix_cache=True, graphs=True)
    sampling = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
    loads: list[Future[AdapterInfo]] = []
    requests = {
        name: [CoreRequest(f"{name}{i}", each, sampling, adapter=name) for i, each in enumerate(oracle.prompts)]
        for name in ("", "one")
    }

    def build(on_events: OnEvents) -> EngineCore:
        def first(events: list[Event]) -> None:
            if not loads and any(isinstance(event, TokenEvent) for event in events):  # on the core's thread
                loads.append(core.load_adapter("one", str(oracle.adapters["one"])))
                core._adapters._reader.submit(lambda: None).result(PATIENCE)
            on_events(events)

        core = build_core(oracle.loaded, point, first)
        return core

    oracle.loaded.model.adapters.release()
    with EngineDriver(build) as driver:
        for request in requests[""]:
            driver.submit(request)
        driver.core.start()
        driver.gather()
        loads[0].result(PATIENCE)
        assert len(driver.collected.finished) < len(requests[""])
        for request in requests["one"]:
            driver.submit(request)
        finish(driver, [*requests[""], *requests["one"]])
    for name, asked in requests.items():
        got = [tuple(driver.collected.tokens[request.id]) for request in asked]
        assert got == [*oracle.expected(name)]


def test_eight_adapters_in_a_step_and_each_alone(tmp_path: Path) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    names = [str(number) for number in range(8)]
    oracle = adapter_oracle("llama", tmp_path, {name: {"r": 4 + int(name)} for name in names}, device=GPU)
    point = options(preempted=False, chunked=False, overlap=True, prefix_cache=False, graphs=True)
    sampling, prompt = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True), oracle.prompts[-1]
    together, alone = (
        [CoreRequest(f"{kind} {name}", prompt, sampling, adapter=name) for name in names] for kind in "ta"
    )
    with EngineDriver(lambda on_events: oracle.core(point, on_events)) as driver:
        driver.run(together)
        for request in alone:
            driver.submit(request)
            finish(driver, [request])
    tokens = driver.collected.tokens
    assert [tokens[request.id] for request in together] == [tokens[request.id] for request in alone]
    assert [tuple(tokens[request.id]) for request in alone] == [oracle.expected(name)[-1] for name in names]


def test_a_base_in_fp8(tmp_path: Path) -> None:
    """No merged weights to compare with: an adapter of zeros changes nothing, another one does."""
    torch.backends.cuda.matmul.allow_tf32 = False
    sizes = {
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 32,
    }
    oracle = adapter_oracle(
        "llama", tmp_path, {"none": {"r": 4, "lora_alpha": 0}, "one": {"r": 4}}, device=GPU, **sizes
    )
    base = load_model(oracle.folder, device=GPU, dtype=torch.bfloat16, weights="fp8", cache_dir=None)
    point = options(preempted=False, chunked=False, overlap=True, prefix_cache=False, graphs=True)
    sampling = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
    with EngineDriver(lambda on_events: replace(oracle, loaded=base).core(point, on_events)) as driver:
        driver.core.start()
        tokens = {}
        for name in ("", "none", "one"):
            request = CoreRequest(f"{name} alone", oracle.prompts[-1], sampling, adapter=name)
            driver.submit(request)
            finish(driver, [request])
            tokens[name] = driver.collected.tokens[request.id]
    assert tokens[""] == tokens["none"] != tokens["one"]
