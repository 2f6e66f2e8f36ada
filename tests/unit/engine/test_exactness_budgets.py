"""With a KV budget, the engine gives the tokens of a transformers model whose queries see the kept tokens only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.budget_oracle import NEW, ROOMY, budget_oracle, check
from tests.support.engine_driver import EngineDriver
from tests.support.graphs_without_gpu import rerun_captured
from tests.support.oracle import Oracle
from tests.support.sweep import combinations
from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.models.model import Model
from thothy_ai.engine.process.build import build_core
from thothy_ai.kernels.step import StepTokens

FAMILIES = ("llama", "qwen3", "glm4", "qwen3_moe", "phi")  # the last one runs through transformers


@pytest.fixture(scope="module")
def oracles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Oracle]:
    """Makes each oracle once; a parametrized fixture is made again whenever the next test has another parameter."""
    return cache(lambda family: budget_oracle(family, tmp_path_factory.mktemp(family), torch.device("cpu")))


@pytest.fixture
def oracle(oracles: Callable[[str], Oracle], request: pytest.FixtureRequest) -> Oracle:
    return oracles(getattr(request, "param", FAMILIES[0]))


@pytest.mark.parametrize(
    ("oracle", "preempted", "chunked", "overlap", "graphs"),
    combinations(FAMILIES, *[(False, True)] * 4),
    indirect=["oracle"],
)
def test_queries_see_the_kept_tokens_only(
    oracle: Oracle, *, preempted: bool, chunked: bool, overlap: bool, graphs: bool
) -> None:
    check(oracle, preempted=preempted, chunked=chunked, overlap=overlap, graphs=graphs)


def test_captured_steps_have_the_places_of_each_replay(oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    runners = rerun_captured(monkeypatch, kept=(4, 8))
    check(oracle, preempted=True, chunked=True, overlap=True, graphs=True)
    assert runners[0].replays > NEW


def test_steps_that_run_in_parts_drop_the_same_blocks(oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Model.forward

    def forward(self: Model, tokens: StepTokens, *rest: Any) -> Tensor:
        if len(tokens.ids) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(self, tokens, *rest)

    monkeypatch.setattr(Model, "forward", forward)
    oracle.check(ROOMY)


def test_a_text_that_cannot_exceed_its_budget_is_as_one_without(oracle: Oracle) -> None:
    """It shares its blocks, too."""
    sampling, prompt = SamplingParams(max_tokens=6, ignore_eos=True, logprobs=2), oracle.prompts[0]
    longest = len(prompt) + sampling.max_tokens
    requests = [CoreRequest(str(budget), prompt, sampling, kv_budget=budget) for budget in (None, longest, longest - 1)]
    with EngineDriver(partial(build_core, oracle.loaded, ROOMY)) as driver:
        outcome = driver.run(requests)
    of_none, of_all, of_less = (str(request.kv_budget) for request in requests)
    assert outcome.logprobs[of_all] == outcome.logprobs[of_none]
    cached = [outcome.finished[name].usage.cached_tokens for name in (of_none, of_all, of_less)]
    assert cached == [0, 88, 0]


def test_budgets_that_cannot_be_kept_are_refused(oracle: Oracle) -> None:
    request = CoreRequest("a", oracle.prompts[0], SamplingParams())
    with EngineDriver(partial(build_core, oracle.loaded, ROOMY)) as driver:
        with pytest.raises(InvalidRequestError, match="at least 16 tokens, 4 blocks") as refused:
            driver.submit(replace(request, kv_budget=15))
        assert refused.value.field == "kv_budget"
        driver.run([replace(request, kv_budget=16)])
