"""What requests ask for, beside grammars, forced tokens, and steps in parts; against single steps without an engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.support.constrained import GREEDY, SCRIPTS, Slot, Slots, request
from tests.support.engine_driver import Collected, EngineDriver
from tests.support.loading import load_model
from tests.support.oracle import ROOMY, TINY_POOL, random_prompts
from tests.support.paged_run import PagedRun
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api import FinishReason, LogitBias, SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.models.model import Model
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel

VOCAB = 131
ASKING = replace(GREEDY, frequency_penalty=1.5, logit_bias=(LogitBias(5, 2.0), LogitBias(31, -3.0)), logprobs=3)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tiny_model("qwen3", tmp_path_factory.mktemp("asked"))
    return load_model(folder, device=torch.device("cpu"), dtype=torch.float32)


def collected(loaded: LoadedModel, requests: Sequence[CoreRequest], options: EngineOptions) -> Collected:
    with EngineDriver(lambda on_events: build_core(loaded, options, on_events)) as driver:
        return driver.run(requests)


def expected(loaded: LoadedModel, prompt: Sequence[int], slots: Sequence[Slot]) -> tuple[list[int], list[float | None]]:
    """The best token of each slot by penalized scores, and its log-probability by the model's, if it had a choice."""
    steps = PagedRun(loaded.model, 1, len(prompt) + len(slots))
    fed, output, logprobs = list(prompt), [], []
    for slot in slots:
        scores = steps.step({0: fed})[0][-1]
        changed = scores.clone()
        for bias in ASKING.logit_bias:
            changed[bias.token] += bias.value
        for token, count in Counter(output).items():
            changed[token] -= ASKING.frequency_penalty * count
        allowed = torch.tensor(sorted(slot))
        fed = [int(allowed[changed[allowed].argmax()])]
        output += fed
        logprobs.append(float(scores.log_softmax(-1)[fed[0]]) if len(slot) > 1 else None)
    return output, logprobs


class LateSlots(Slots):
    """What is forced is found when its mask is filled, as with most tokens of a schema."""

    def may_force_after(self, token: int) -> bool:
        return False


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("slots", [Slots, LateSlots])
@pytest.mark.parametrize("sizes", [{}, {"kv_tokens": TINY_POOL}, {"token_budget": 7}, {"graphs": True}], ids=str)
def test_penalties_and_biases_under_a_grammar(
    loaded: LoadedModel, slots: type[Slots], sizes: dict[str, int], *, overlap: bool
) -> None:
    """Forced tokens count, have no log-probability, and are what they are whatever the penalties say."""
    prompts = random_prompts(VOCAB)[: len(SCRIPTS)]
    requests = [
        request(str(place), prompt, ASKING, slots(script))
        for place, (prompt, script) in enumerate(zip(prompts, SCRIPTS, strict=True))
    ]
    made = collected(loaded, requests, replace(ROOMY, overlap=overlap, **sizes))
    for place, (prompt, script) in enumerate(zip(prompts, SCRIPTS, strict=True)):
        tokens, logprobs = expected(loaded, prompt, script)
        assert made.tokens[str(place)] == tokens
        drawn = [each and each.logprob for each in made.logprobs[str(place)]]
        assert [each is None for each in drawn] == [each is None for each in logprobs]
        assert [each for each in drawn if each] == pytest.approx([each for each in logprobs if each], abs=1e-4)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_forced_token_may_end_a_text_but_not_before_its_minimum(loaded: LoadedModel, *, overlap: bool) -> None:
    """The script is one token of a few, then 1 to 6, then others."""
    prompt, script = random_prompts(VOCAB)[0], SCRIPTS[1]
    stops = replace(GREEDY, stop_token_ids=(4,))
    requests = [
        request("stops", prompt, stops, Slots(script)),
        request("first", prompt, replace(stops, stop_token_ids=(1, 4)), Slots(script)),
        request("later", prompt, replace(stops, stop_token_ids=(4, 6), min_tokens=5), Slots(script)),
    ]
    made = collected(loaded, requests, replace(ROOMY, overlap=overlap))
    assert made.tokens["stops"][1:] == [1, 2, 3]
    assert made.tokens["first"][1:] == []
    assert made.tokens["later"][1:] == [1, 2, 3, 4, 5]
    assert {event.reason for event in made.finished.values()} == {FinishReason.STOP}


@pytest.mark.parametrize("overlap", [False, True])
def test_a_step_in_parts_changes_nothing(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch, *, overlap: bool
) -> None:
    requests = [
        CoreRequest(
            str(place),
            prompt,
            replace(
                ASKING,
                stop_token_ids=tuple(range(40)),
                min_tokens=3 * place,
                frequency_penalty=ASKING.frequency_penalty * (place % 2),
            ),
        )
        for place, prompt in enumerate(random_prompts(VOCAB))
    ]
    options = replace(ROOMY, overlap=overlap)
    whole, forward = collected(loaded, requests, options), Model.forward

    def small(model: Model, tokens: object, *rest: object) -> Tensor:
        if len(tokens.ids) > 6:
            raise torch.OutOfMemoryError("out of memory")
        return forward(model, tokens, *rest)

    monkeypatch.setattr(Model, "forward", small)
    parts = collected(loaded, requests, options)
    assert parts.tokens == whole.tokens
    assert [[each.top_tokens for each in parts.logprobs[each.id]] for each in requests] == [
        [each.top_tokens for each in whole.logprobs[each.id]] for each in requests
    ]


@pytest.mark.parametrize(
    ("sampling", "named"),
    [
        (SamplingParams(stop_token_ids=(VOCAB,)), "stop_token_ids"),
        (SamplingParams(logit_bias=(LogitBias(VOCAB, 1.0),)), "logit_bias"),
    ],
)
def test_tokens_that_the_vocabulary_lacks_are_refused_by_name(
    loaded: LoadedModel, sampling: SamplingParams, named: str
) -> None:
    driver = EngineDriver(lambda on_events: build_core(loaded, ROOMY, on_events))
    with pytest.raises(InvalidRequestError, match=named):
        driver.submit(CoreRequest("a", (1,), sampling))


def test_more_log_probabilities_than_tokens_are_refused(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, vocab_size=9)
    small = load_model(folder, device=torch.device("cpu"), dtype=torch.float32)
    driver = EngineDriver(lambda on_events: build_core(small, ROOMY, on_events))
    with pytest.raises(InvalidRequestError, match="logprobs=10"):
        driver.submit(CoreRequest("a", (1,), SamplingParams(logprobs=10)))
