"""With drafts, right and wrong ones, every request gets exactly the tokens that it gets without."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.support.byte_tokenizer import schema_grammar
from tests.support.constrained import DRAWS, MAX_TOKENS, VOCAB, request
from tests.support.engine_driver import Collected, EngineDriver
from tests.support.oracle import ROOMY, random_prompts
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api import CoreStats, LogitBias, SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.drafting.drafter import AutomaticDrafter
from thothy_ai.engine.drafting.matching import Tokens
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel, load_model

WITH = replace(ROOMY, drafts=True)
GREEDY = SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True)
CHANGED = (  # scores that depend on what was written, and on how much
    SamplingParams(frequency_penalty=0.7, presence_penalty=0.3),
    SamplingParams(temperature=0.9, frequency_penalty=1.2, seed=4),
    SamplingParams(logit_bias=(LogitBias(5, 3.0), LogitBias(6, -3.0)), temperature=0.5, seed=3),
    SamplingParams(min_tokens=9, stop_token_ids=tuple(range(0, VOCAB, 9))),
    SamplingParams(stop_token_ids=tuple(range(0, VOCAB, 9))),
)


class EagerDrafter(AutomaticDrafter):
    """Sends every draft that it finds."""

    def is_worthwhile(self, rows: int, places: int) -> bool:
        return bool(rows and places > 0)

    def _plain_rate(self, rows: int) -> float:
        return 1e-9

    def _seconds(self, rows: int, drafts: int) -> float:
        return 1.0


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tiny_model("qwen3", tmp_path_factory.mktemp("drafts"))
    return load_model(folder, device=torch.device("cpu"), dtype=torch.float32)


@pytest.fixture(scope="module")
def byte_model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tiny_model("llama", tmp_path_factory.mktemp("drafts"), vocab_size=300)
    return load_model(folder, device=torch.device("cpu"), dtype=torch.float32)


def drafted(
    loaded: LoadedModel, requests: Sequence[CoreRequest], remembered: Iterable[Sequence[int]], options: EngineOptions
) -> tuple[Collected, CoreStats]:
    """What requests get from an engine that remembers these outputs."""
    with EngineDriver(lambda on_events: build_core(loaded, options, on_events)) as driver:
        core = driver.core
        core._drafter = EagerDrafter({}, options.max_context or 60)
        core._requests._on_end = core._drafter.leave
        texts = core._drafter._profiles["", ""] = Tokens(4096)
        for output in remembered:
            texts.end()
            texts.add([*output])
        collected = driver.run(requests)
    return collected, core.stats().core


def plain(loaded: LoadedModel, requests: Sequence[CoreRequest]) -> Collected:
    with EngineDriver(lambda on_events: build_core(loaded, ROOMY, on_events)) as driver:
        return driver.run(requests)


def spoiled(outputs: Iterable[Sequence[int]]) -> list[list[int]]:
    """Outputs of which each sixth token is another one."""
    return [[token ^ 1 if place % 6 == 5 else token for place, token in enumerate(output)] for output in outputs]


SAMPLED = [*DRAWS, *CHANGED]
OPTIONS = [{}, {"overlap": True}, {"kv_tokens": 64}, {"token_budget": 7}, {"graphs": True, "overlap": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_drafts_change_no_token(loaded: LoadedModel, options: dict[str, int]) -> None:
    """Greedy and sampled, with penalties, biases and ends; preempted and chunked; among right and wrong drafts."""
    requests = [
        request(f"{number}", random_prompts(VOCAB)[number % 8], replace(each, max_tokens=MAX_TOKENS))
        for number, each in enumerate([GREEDY, *SAMPLED])
    ]
    expected = plain(loaded, requests).tokens
    outputs = [expected[each.id] for each in requests]
    found, counts = drafted(loaded, requests, [*outputs, *spoiled(outputs)], replace(WITH, **options))
    assert found.tokens == expected
    assert 0 < counts.accepted_tokens < counts.drafted_tokens
    without = sum(map(len, outputs))
    assert counts.decode_tokens - counts.drafted_tokens < without  # steps were saved
    assert counts.attributed_seconds == pytest.approx(counts.busy_seconds)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("options", [{}, {"overlap": True, "graphs": True}, {"kv_tokens": 64}], ids=str)
def test_drafts_under_a_schema(byte_model: LoadedModel, seed: int, options: dict[str, int]) -> None:
    """Grammars cut drafts, force tokens among them, and go on from the last right one; budgets end texts as before."""
    sampling = [
        SamplingParams(max_tokens=length, temperature=heat, seed=seed)
        for length, heat in ((60, 0.0), (60, 1.5), (42, 1.0))
    ]

    def requests() -> list[CoreRequest]:
        made = [
            request(f"{number}", random_prompts(VOCAB)[number], each, schema_grammar())
            for number, each in enumerate(sampling)
        ]
        for each in made:
            each.grammar.limit(each.sampling.max_tokens)  # type: ignore[attr-defined]
        return [*made, request("free", random_prompts(VOCAB)[3], GREEDY)]

    roomy = replace(ROOMY, max_context=120)
    with EngineDriver(lambda on_events: build_core(byte_model, roomy, on_events)) as driver:
        expected = driver.run(requests())
    outputs = [*expected.tokens.values()]
    found, counts = drafted(
        byte_model, requests(), [*outputs, *spoiled(outputs)], replace(roomy, drafts=True, **options)
    )
    assert found.tokens == expected.tokens
    assert {name: end.reason for name, end in found.finished.items()} == {
        name: end.reason for name, end in expected.finished.items()
    }
    assert counts.accepted_tokens > 0


def test_log_probabilities_are_those_of_a_run_without_drafts(loaded: LoadedModel) -> None:
    """A request that wants some has no drafts; those beside it have."""
    requests = [
        request(f"{number}", random_prompts(VOCAB)[number], replace(GREEDY, logprobs=2 if number else None))
        for number in range(3)
    ]
    expected = plain(loaded, requests)
    found, counts = drafted(loaded, requests, expected.tokens.values(), WITH)
    assert found.tokens == expected.tokens
    assert {*found.logprobs} == {*expected.logprobs}
    for name, logprobs in expected.logprobs.items():
        for one, other in zip(found.logprobs[name], logprobs, strict=True):
            assert (one is None) == (other is None)
            if one is not None and other is not None:
                assert one.top_tokens == other.top_tokens
                assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
    assert counts.accepted_tokens > 0


def test_a_recurrent_model_refuses_drafts(tmp_path: Path) -> None:
    folder = tiny_model("qwen3_next", tmp_path)
    recurrent = load_model(folder, device=torch.device("cpu"), dtype=torch.float32)
    with pytest.raises(InvalidRequestError, match="recurrent"):
        build_core(recurrent, WITH, lambda _: None)


def test_the_arithmetic_sends_none_where_a_step_is_full(loaded: LoadedModel) -> None:
    """With as many sequences as rows, a step has no places; with fewer, drafts go on."""
    requests = [request(f"{number}", random_prompts(VOCAB)[number], GREEDY) for number in range(8)]
    expected = plain(loaded, requests)
    found, counts = drafted(loaded, requests, expected.tokens.values(), replace(WITH, max_rows=8))
    assert found.tokens == expected.tokens
    alone, fewer = drafted(loaded, requests[:2], expected.tokens.values(), replace(WITH, max_rows=8))
    assert counts.drafted_tokens == 0
    assert fewer.accepted_tokens > 0
    assert alone.tokens == {each.id: expected.tokens[each.id] for each in requests[:2]}


@pytest.mark.parametrize("overlap", [False, True])
def test_whatever_the_arithmetic_chooses_the_tokens_are_the_same(loaded: LoadedModel, *, overlap: bool) -> None:
    """With times as this machine has them; a batch that shrinks, whose later requests resemble the first."""
    prompts = random_prompts(VOCAB)
    requests = [
        request(f"{number}", prompts[number % 4], replace(GREEDY, max_tokens=6 + number % 19)) for number in range(24)
    ]
    expected = plain(loaded, requests).tokens
    with EngineDriver(lambda on_events: build_core(loaded, replace(WITH, overlap=overlap), on_events)) as driver:
        assert driver.run(requests).tokens == expected
