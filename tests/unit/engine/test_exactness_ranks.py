"""Two processes that share every layer of a model choose the tokens of one process, which are transformers'."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.checkpoints import SCHEMES
from tests.support.constrained import DRAWS, GREEDY, SCRIPTS, VOCAB, Slots, request
from tests.support.engine_driver import Collected, EngineDriver
from tests.support.loading import load_model
from tests.support.mxfp4_checkpoint import mxfp4_checkpoints
from tests.support.oracle import MATRIX_AXES, ROOMY, Oracle, options, random_prompts, tiny_oracle
from tests.support.quantized_models import quantized_model
from tests.support.tiny_models import FAMILIES, GEMMA4_EXPERTS, GEMMA4_SMALL, RECURRENT, tiny_model
from tests.support.two_ranks import SharedModel, two_ranks
from thothy_ai.engine.api.core import CoreRequest, OnEvents
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.distributed.leader import Group
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel

CPU = torch.device("cpu")
DIVIDED = {
    **{family: (family, {}) for family in FAMILIES if family not in RECURRENT},
    "one KV head": ("llama", {"num_key_value_heads": 1}),  # which both ranks have
    "tied": ("qwen3", {"tie_word_embeddings": True}),
    "biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "shared keys": ("gemma4_text", GEMMA4_SMALL),
    "experts beside an MLP": ("gemma4_text", {**GEMMA4_EXPERTS, "moe_intermediate_size": 32}),
}
POINTS = [  # any two values of two axes meet
    (False, False, False, False),
    (False, True, True, True),
    (True, False, True, True),
    (True, True, False, True),
    (True, True, True, False),
]
CASES = [(name, *POINTS[place % len(POINTS)]) for place, name in enumerate(DIVIDED)]
CASES += [("llama", *point) for point in POINTS[1:]]


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with two_ranks() as started:
        yield started


@pytest.fixture(scope="module")
def oracles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Oracle, Path]]:
    @cache
    def made(name: str) -> tuple[Oracle, Path]:
        (family, fields), folder = DIVIDED[name], tmp_path_factory.mktemp("model")
        return tiny_oracle(family, folder, CPU, **fields), folder / family

    return made


@pytest.mark.parametrize(("name", *MATRIX_AXES[:4]), CASES)
def test_greedy_tokens_equal_transformers(
    name: str,
    group: Group,
    oracles: Callable[[str], tuple[Oracle, Path]],
    *,
    preempted: bool,
    chunked: bool,
    overlap: bool,
    prefix_cache: bool,
) -> None:
    oracle, folder = oracles(name)
    point = options(preempted=preempted, chunked=chunked, overlap=overlap, prefix_cache=prefix_cache)
    stats = oracle.check(point, build=SharedModel(group, folder).build)
    assert (stats.scheduler.preemptions > 0) == preempted
    assert (stats.core.cached_tokens > 0) == prefix_cache


@pytest.mark.parametrize("chosen", [{"attention": "flex"}, {"kv_dtype": "fp8"}], ids=str)
def test_options_do_with_ranks_what_they_do_without(chosen: dict[str, Any], group: Group, tmp_path: Path) -> None:
    compare(tiny_model("llama", tmp_path), group, replace(ROOMY, **chosen))


def test_shares_of_a_step_s_seconds_are_those_of_one_process(group: Group, tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path)
    loaded = load_model(folder, device=CPU, dtype=torch.float32)
    costs = []
    for build in (build_core, SharedModel(group, folder).build):
        with EngineDriver(lambda on_events, build=build: build(loaded, ROOMY, on_events)) as driver:
            driver.core.start()
            costs.append(driver.core._cost)
    assert costs[0] == costs[1]


def drawn(
    loaded: LoadedModel, options: EngineOptions, build: Callable[[LoadedModel, EngineOptions, OnEvents], EngineCore]
) -> Collected:
    """Every kind of draw beside grammars, with log-probabilities, and three answers to one prompt."""
    prompts = random_prompts(VOCAB)
    requests: list[CoreRequest] = [
        request(f"draw {place}", prompt, replace(sampling, max_tokens=24, ignore_eos=True, logprobs=2))
        for place, (prompt, sampling) in enumerate(zip(prompts, DRAWS, strict=True))
    ]
    requests += [
        request(f"script {place}", prompts[place], GREEDY, Slots(script)) for place, script in enumerate(SCRIPTS)
    ]
    requests += [
        request(f"again {seed}", prompts[-1], replace(DRAWS[1], seed=seed, max_tokens=12, ignore_eos=True))
        for seed in range(3)
    ]
    with EngineDriver(lambda on_events: build(loaded, options, on_events)) as driver:
        collected = driver.run(requests)
    assert not [event.error for event in collected.finished.values() if event.error]
    return collected


@pytest.mark.parametrize("overlap", [False, True])
def test_draws_masks_and_log_probabilities_are_those_of_one_process(
    group: Group, tmp_path: Path, *, overlap: bool
) -> None:
    folder = tiny_model("qwen3", tmp_path)
    point = replace(ROOMY, overlap=overlap, token_budget=40, kv_tokens=280)
    one = drawn(load_model(folder, device=CPU, dtype=torch.float32), point, build_core)
    two = drawn(load_model(folder, device=CPU, dtype=torch.float32), point, SharedModel(group, folder).build)
    assert two.tokens == one.tokens
    assert sum(map(len, one.tokens.values())) > 200
    for name, found in one.logprobs.items():
        for mine, its in zip(found, two.logprobs[name], strict=True):
            assert (mine is None) == (its is None)
            if mine is not None and its is not None:
                assert its.top_tokens == mine.top_tokens
                assert its.logprob == pytest.approx(mine.logprob, abs=1e-4)


WHOLE_GROUPS = ["AWQ, groups of 32", "GPTQ, groups of 32, asymmetric", "compressed-tensors W4A16, channels"]


@pytest.mark.parametrize(("scheme", "family"), [*zip(WHOLE_GROUPS, ("llama", "qwen3_moe", "glm4"), strict=True)])
def test_packed_weights_are_divided(scheme: str, family: str, group: Group, tmp_path: Path) -> None:
    sizes = {"intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    folder = quantized_model(SCHEMES[scheme], tmp_path, family, **sizes)
    compare(folder, group)


def test_experts_in_mxfp4_are_divided(group: Group, tmp_path: Path) -> None:
    compare(mxfp4_checkpoints(tmp_path, intermediate_size=64).packed, group)


def compare(folder: Path, group: Group, chosen: EngineOptions = ROOMY) -> None:
    """Greedy, two ranks choose the tokens that one process does."""
    loaded = load_model(folder, device=CPU, dtype=torch.float32, flex=chosen.attention == "flex")
    requests = [request(str(place), prompt, GREEDY) for place, prompt in enumerate(random_prompts(VOCAB))]
    outputs = []
    for build in (build_core, SharedModel(group, folder).build):
        with EngineDriver(lambda on_events, build=build: build(loaded, chosen, on_events)) as driver:
            outputs.append(driver.run(requests).tokens)
    assert sum(map(len, outputs[0].values())) > 50
    assert outputs[0] == outputs[1]
