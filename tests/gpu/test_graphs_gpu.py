"""Steps are replayed from graphs, and only where graphs are wanted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.constrained import FEW, Slot, Slots, only
from tests.support.engine_driver import EngineDriver, GrammarRequest
from tests.support.loading import load_model
from tests.support.oracle import ROOMY, random_prompts
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.execution import draws
from thothy_ai.engine.execution.mixed_graphs import MixedGraphs
from thothy_ai.engine.grammar.compiler import Grammar
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel

pytestmark = pytest.mark.gpu
SAMPLING = SamplingParams(max_tokens=20, ignore_eos=True)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tiny_model("llama", tmp_path_factory.mktemp("llama"))
    return load_model(folder, device=torch.device("cuda", 0), dtype=torch.bfloat16)


def replayed(
    loaded: LoadedModel, *, graphs: bool, overlap: bool, max_rows: int = 8, script: Sequence[Slot] = ()
) -> tuple[int, int]:
    """Steps of a drain whose first step computes all prompts, and how many were replayed; one follows the script."""
    options = replace(ROOMY, graphs=graphs, overlap=overlap, max_rows=max_rows)
    prompts = random_prompts(loaded.config.vocab_size)
    grammars: list[Grammar | None] = [Slots(script) if script else None, *[None] * (len(prompts) - 1)]
    with EngineDriver(lambda on_events: build_core(loaded, options, on_events)) as driver:
        before = driver.core._runner.replays
        driver.run(
            GrammarRequest(str(index), prompt, SAMPLING, grammar=grammar)
            for index, (prompt, grammar) in enumerate(zip(prompts, grammars, strict=True))
        )
        stats = driver.core.stats().core
        assert stats.replayed_steps == driver.core._runner.replays - before
        return stats.steps, stats.replayed_steps


@pytest.mark.parametrize("overlap", [False, True])
def test_all_steps_are_replayed(loaded: LoadedModel, *, overlap: bool) -> None:
    """The first has the 139 tokens of all prompts, and is padded to 256: a device computes these of such a small model
    faster than a host launches them.
    """
    steps, replays = replayed(loaded, graphs=True, overlap=overlap)
    assert (steps, replays) == (SAMPLING.max_tokens, SAMPLING.max_tokens)


@pytest.mark.parametrize("overlap", [False, True])
def test_forced_tokens_in_the_midst_of_a_text_change_nothing_in_that(loaded: LoadedModel, *, overlap: bool) -> None:
    script = [FEW, FEW, *only(1, 2, 3, 4, 5, 6), FEW, FEW, *only(0, 9), *[FEW] * 8]
    steps, replays = replayed(loaded, graphs=True, overlap=overlap, max_rows=32, script=script)
    assert (steps, replays) == (SAMPLING.max_tokens, SAMPLING.max_tokens)


@pytest.mark.parametrize("overlap", [False, True])
def test_without_graphs_none_is(loaded: LoadedModel, *, overlap: bool) -> None:
    assert replayed(loaded, graphs=False, overlap=overlap) == (SAMPLING.max_tokens, 0)


@pytest.mark.parametrize("kv_dtype", ["auto", "fp8"])
@pytest.mark.parametrize("graphs", [False, True])
def test_full_steps_that_prefill_are_replayed_layer_by_layer(
    loaded: LoadedModel, kv_dtype: str, *, graphs: bool
) -> None:
    """139 tokens of prompts at 32 a step; that results stay exact is what the matrix of a small budget holds."""
    options = replace(ROOMY, graphs=graphs, token_budget=32, kv_dtype=kv_dtype, prefix_cache=False)
    prompts = random_prompts(loaded.config.vocab_size)
    with EngineDriver(lambda on_events: build_core(loaded, options, on_events)) as driver:
        outcome = driver.run(CoreRequest(str(index), prompt, SAMPLING) for index, prompt in enumerate(prompts))
        assert (driver.core._runner._mixed.replays >= 3) == graphs
    assert all(len(tokens) == SAMPLING.max_tokens for tokens in outcome.tokens.values())


@pytest.mark.parametrize("family", ["qwen3", "qwen3_next", "qwen3_5_text"])
def test_steps_of_several_sizes_in_turn_are_replayed_exactly(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A smaller step is affected neither by what a larger one left behind nor by its padding."""
    torch.backends.cuda.matmul.allow_tf32 = False
    folder = tiny_model(family, tmp_path, max_position_embeddings=512)
    fp32 = load_model(folder, device=torch.device("cuda", 0), dtype=torch.float32)
    sizes, run = [], MixedGraphs.run

    def noted(graphs: MixedGraphs, size: int, *rest: Any) -> Any:
        sizes.append(size)
        return run(graphs, size, *rest)

    monkeypatch.setattr(MixedGraphs, "run", noted)
    draw = random.Random(1)
    prompts = [tuple(draw.choices(range(131), k=length)) for length in (280, 40, 230, 90, 300, 5, 150)]
    made = replace(ROOMY, kv_tokens=4096, max_context=400, token_budget=300, max_rows=4, prefix_cache=False)
    tokens = []
    for graphs in (True, False):
        options = replace(made, graphs=graphs)
        with EngineDriver(lambda on_events, of=options: build_core(fp32, of, on_events)) as driver:
            tokens.append(driver.run(CoreRequest(f"{len(prompt)}", prompt, SAMPLING) for prompt in prompts).tokens)
    assert tokens[0] == tokens[1]
    assert {128, 256, 300} <= set(sizes)


def drawn(loaded: LoadedModel, *, graphs: bool, overlap: bool) -> tuple[dict[str, list[int]], int]:
    """Tokens of sampled requests, some of them constrained and with forced tokens, and how many draws were replayed."""
    sampling = replace(SAMPLING, temperature=0.9, top_p=0.9, repetition_penalty=1.1)
    script = [FEW, FEW, *only(1, 2, 3, 4), *[FEW] * 14]
    requests = [
        GrammarRequest(str(index), prompt, replace(sampling, seed=index), grammar=Slots(script) if index % 3 else None)
        for index, prompt in enumerate(random_prompts(loaded.config.vocab_size))
    ]
    options = replace(ROOMY, graphs=graphs, overlap=overlap)
    with EngineDriver(lambda on_events: build_core(loaded, options, on_events)) as driver:
        return driver.run(requests).tokens, driver.core._runner._decode.draws.replays


@pytest.mark.parametrize("overlap", [False, True])
def test_draws_are_replayed_and_give_the_same_tokens(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch, *, overlap: bool
) -> None:
    monkeypatch.setattr(draws, "_DRAWS_BEFORE_CAPTURE", 1)
    tokens, replays = drawn(loaded, graphs=True, overlap=overlap)
    assert replays > 10
    assert drawn(loaded, graphs=False, overlap=overlap) == (tokens, 0)
