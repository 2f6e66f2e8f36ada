"""With a KV budget, the engine gives the tokens of a transformers model whose queries see the kept tokens only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.adapter_oracle import adapter_oracle
from tests.support.arithmetic_model import continuation
from tests.support.arithmetic_runs import SMALL, drive
from tests.support.arithmetic_runs import request as arithmetic_request
from tests.support.budget_oracle import NEW, ROOMY, SIZE, budget_oracle, check, check_in_small_pool, continued
from tests.support.engine_driver import EngineDriver, GrammarRequest
from tests.support.forcing_grammar import Forcing
from tests.support.graphs_without_gpu import rerun_captured
from tests.support.loading import load_model
from tests.support.oracle import Oracle
from tests.support.peft_folders import merged
from tests.support.sweep import combinations
from tests.support.tiny_models import reference_model, tiny_model
from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.errors import InvalidRequestError, PromptTooLongError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.model_check.sizing import engine_sizes
from thothy_ai.engine.models.model import Model
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.kernels.step import StepTokens

CPU = torch.device("cpu")
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
    assert outcome.tokens[of_all] == outcome.tokens[of_none]
    drawn = ([each.logprob for each in outcome.logprobs[name] if each is not None] for name in (of_all, of_none))
    torch.testing.assert_close(*drawn, rtol=0, atol=1e-4)  # other rows beside them round otherwise
    cached = [outcome.finished[name].usage.cached_tokens for name in (of_none, of_all, of_less)]
    assert cached == [0, 88, 0]


def test_a_text_with_a_budget_can_be_longer_than_the_pool(oracle: Oracle) -> None:
    small = check_in_small_pool(oracle, graphs=True)
    long = CoreRequest("a", oracle.prompts[0], SamplingParams(max_tokens=1))
    with EngineDriver(partial(build_core, oracle.loaded, small)) as driver:
        for budget in (None, 56, 60, 200):  # a quarter more than these is more than the pool
            with pytest.raises(PromptTooLongError, match="90 tokens"):
                driver.submit(replace(long, kv_budget=budget))
        with pytest.raises(PromptTooLongError, match="context is 130"):
            driver.submit(replace(long, prompt=(3,) * 130, kv_budget=32))
        driver.run([replace(long, kv_budget=48)])


@pytest.mark.parametrize("at_once", [False, True])
def test_forced_tokens_cross_a_border_at_which_blocks_are_dropped(tmp_path: Path, *, at_once: bool) -> None:
    path, prompt, budget, run = tiny_model("llama", tmp_path), tuple(range(40, 73)), 16, [7, 9, 11, 13, 15, 17]
    loaded, model = load_model(path, device=CPU, dtype=torch.float32), reference_model(path)
    trigger = continued(model, prompt, budget, 1, SIZE).tokens[0]
    forced = dict(enumerate(run, len(prompt) + 1))  # tokens 34 to 39; 36 is a border
    made = continued(model, prompt, budget, 12, SIZE, forced)
    assert made.tokens[1:7] == tuple(run)
    assert trigger not in made.tokens[1:]
    request = GrammarRequest(
        "a", prompt, SamplingParams(max_tokens=12, ignore_eos=True), kv_budget=budget,
        grammar=Forcing(trigger, run, at_once=at_once),
    )  # fmt: skip
    with EngineDriver(partial(build_core, loaded, ROOMY)) as driver:
        assert tuple(driver.run([request]).tokens["a"]) == made.tokens


def test_a_plain_adapter_has_its_budget(tmp_path: Path) -> None:
    oracle = adapter_oracle("llama", tmp_path, {"one": {"r": 4}})
    prompt = tuple(range(3, 60))
    model = reference_model(oracle.folder)
    base = continued(model, prompt, 16, 12, SIZE)
    model.load_state_dict(merged(model.state_dict(), oracle.adapters["one"]))
    adapted = continued(model, prompt, 16, 12, SIZE)
    assert base.tokens != adapted.tokens != continued(model, prompt, None, 12, SIZE).tokens
    request = CoreRequest("", prompt, SamplingParams(max_tokens=12, ignore_eos=True), kv_budget=16)
    with EngineDriver(partial(oracle.core, ROOMY)) as driver:
        made = driver.run([request, replace(request, id="one", adapter="one")])
    assert (tuple(made.tokens[""]), tuple(made.tokens["one"])) == (base.tokens, adapted.tokens)


def test_fp8_keys_and_values_drop_the_same_blocks_however_they_run(oracle: Oracle) -> None:
    roomy, sampling = replace(ROOMY, kv_dtype="fp8"), SamplingParams(max_tokens=NEW, ignore_eos=True)
    asked = zip(oracle.prompts, oracle.budgets, strict=True)
    requests = [CoreRequest(str(i), each, sampling, kv_budget=budget) for i, (each, budget) in enumerate(asked)]
    with EngineDriver(partial(build_core, oracle.loaded, roomy)) as driver:
        made = driver.run([*requests, replace(requests[0], id="all", kv_budget=None)]).tokens
    assert made["0"] != made["all"]
    expected = tuple(tuple(made[request.id]) for request in requests)
    replace(oracle, expected=expected).check(replace(roomy, token_budget=7, overlap=True, max_rows=2), urgent=3)


def test_budgets_that_cannot_be_kept_are_refused(oracle: Oracle) -> None:
    request = CoreRequest("a", oracle.prompts[0], SamplingParams())
    with EngineDriver(partial(build_core, oracle.loaded, ROOMY)) as driver:
        with pytest.raises(InvalidRequestError, match="at least 16 tokens, 4 blocks") as refused:
            driver.submit(replace(request, kv_budget=15))
        assert refused.value.field == "kv_budget"
        driver.run([replace(request, kv_budget=16)])


@pytest.mark.parametrize(
    ("family", "chosen", "why"),
    [
        ("gemma3_text", {}, "windows"),
        ("qwen3_next", {}, "recurrent layers"),
        ("deepseek_v3", {}, "latents"),
        ("llama", {"attention": "flex"}, "FlexAttention"),
        ("llama", {"tensor_parallel": 2}, "several devices"),
    ],
)
def test_what_keeps_all_refuses_texts_that_could_exceed_a_budget(
    family: str, chosen: dict[str, Any], why: str, tmp_path: Path
) -> None:
    sizes = engine_sizes(model_config(tiny_model(family, tmp_path)), EngineOptions(url="", **chosen), CPU)
    with drive(replace(SMALL, keeps_all=sizes.keeps_all)) as driver:
        with pytest.raises(InvalidRequestError, match=f"kv_budget is not possible.*{why}") as refused:
            driver.submit(arithmetic_request("a", [3, 1, 4], 30, kv_budget=32))
        assert refused.value.field == "kv_budget"
        made = driver.run([arithmetic_request(budget, [3, 1, 4], 5, kv_budget=budget) for budget in (8, 2**31 - 1)])
    assert made.tokens["8"] == continuation([3, 1, 4], 5)
