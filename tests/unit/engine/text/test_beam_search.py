"""Beam search gives transformers' own beams, token for token in fp32."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import GenerationConfig, PreTrainedTokenizerFast

from tests.support.hold import Hold
from tests.support.loading import load_model
from tests.support.oracle import ROOMY, options, random_prompts
from tests.support.sweep import combinations
from tests.support.text_engine import TextEngine, text_engine
from tests.support.tiny_models import reference_model, tiny_model
from thothy_ai.engine.api import (
    BeamSearch,
    EarlyStopping,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    LogitBias,
    SamplingParams,
)
from thothy_ai.engine.api.backend import Failure
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.weights.loader import LoadedModel

VOCAB = 131
NEW_TOKENS = 14
EARLY = {EarlyStopping.FULL: True, EarlyStopping.LIKELY: False, EarlyStopping.NEVER: "never"}
PLAIN = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
Texts = list[tuple[int, ...]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its output layer is its own: a model that repeats the last token would show little."""
    return tiny_model("qwen3", tmp_path_factory.mktemp("beams"), tie_word_embeddings=False)


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedModel:
    return load_model(folder, device=torch.device("cpu"), dtype=torch.float32, cache_dir=None)


@pytest.fixture(scope="module")
def engine(loaded: LoadedModel, tokenizer: PreTrainedTokenizerFast) -> Iterator[TextEngine]:
    with text_engine(loaded, ROOMY, tokenizer) as engine:
        yield engine


def transformers_beams(folder: Path, prompt: tuple[int, ...], request: GenerationRequest) -> Texts:
    wanted, sampling = request.beam_search, request.sampling
    assert wanted is not None
    model = reference_model(folder)
    model.generation_config.eos_token_id = None
    ends = list(sampling.stop_token_ids)
    settings = GenerationConfig(
        max_new_tokens=sampling.max_tokens,
        min_new_tokens=sampling.min_tokens or None,
        num_beams=wanted.width,
        num_return_sequences=request.n,
        length_penalty=wanted.length_penalty,
        early_stopping=EARLY[wanted.early_stopping],
        do_sample=False,
        eos_token_id=ends or None,
        pad_token_id=0 if not ends else ends[0],
    )
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        made = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
    return [_until(row[len(prompt) :].tolist(), ends) for row in made]


def _until(tokens: list[int], ends: list[int]) -> tuple[int, ...]:
    return tuple(itertools.takewhile(lambda token: token not in ends, tokens))


def request(prompt: tuple[int, ...], beams: BeamSearch, sampling: SamplingParams, name: str = "a") -> GenerationRequest:
    return GenerationRequest(name, token_ids=prompt, sampling=sampling, beam_search=beams, n=beams.width)


def texts(end: GenerationResult | Failure) -> Texts:
    assert isinstance(end, GenerationResult)
    return [choice.token_ids for choice in end.choices]


@pytest.mark.parametrize(("width", "penalty", "early"), combinations([2, 5], [1.0, 0.0, -0.7, 2.0], [*EarlyStopping]))
def test_beams_are_those_of_transformers(
    engine: TextEngine, folder: Path, width: int, penalty: float, early: EarlyStopping
) -> None:
    beams = BeamSearch(width, penalty, early)
    prompt = random_prompts(VOCAB)[0]
    ends = tuple(range(0, VOCAB, 11))
    for name, sampling in (
        ("no end", PLAIN),
        ("ends", replace(PLAIN, stop_token_ids=ends)),
        ("minimum", replace(PLAIN, stop_token_ids=ends, min_tokens=5)),
    ):
        asked = request(prompt, beams, sampling)
        made = engine.run([asked])["a"]
        assert texts(made) == transformers_beams(folder, prompt, asked), name


@pytest.mark.parametrize(("preempted", "chunked", "overlap", "prefix_cache"), combinations(*[(False, True)] * 4))
def test_beams_side_by_side_are_those_of_transformers(
    loaded: LoadedModel,
    folder: Path,
    tokenizer: PreTrainedTokenizerFast,
    *,
    preempted: bool,
    chunked: bool,
    overlap: bool,
    prefix_cache: bool,
) -> None:
    prompts = random_prompts(VOCAB)[:4]
    asked = [
        request(prompt, BeamSearch(3), replace(PLAIN, stop_token_ids=tuple(range(0, VOCAB, 9))), str(place))
        for place, prompt in enumerate(prompts)
    ]
    chosen = options(preempted=preempted, chunked=chunked, overlap=overlap, prefix_cache=prefix_cache)
    with text_engine(loaded, chosen, tokenizer) as engine:
        ends = engine.run(asked)
        stats = engine.stats()
    for each, prompt in zip(asked, prompts, strict=True):
        assert texts(ends[each.id]) == transformers_beams(folder, prompt, each), each.id
    assert (stats.core.cached_tokens > 0) == prefix_cache
    seconds = sum(end.usage.compute_seconds for end in ends.values())
    assert seconds == pytest.approx(stats.core.busy_seconds, rel=1e-6)


def test_reasons_means_and_usage(engine: TextEngine) -> None:
    prompt = random_prompts(VOCAB)[1]
    ended = replace(PLAIN, stop_token_ids=tuple(range(0, VOCAB, 11)))
    made = engine.run([request(prompt, BeamSearch(4, early_stopping=EarlyStopping.NEVER), ended)])["a"]
    for choice in made.choices:
        assert choice.finish_reason is (FinishReason.LENGTH if len(choice.token_ids) == 14 else FinishReason.STOP)
        assert choice.text == "".join(chr(0x4E00 + token) for token in choice.token_ids)
    means = [choice.mean_logprob for choice in made.choices]
    assert means == sorted(means, reverse=True), "with a length penalty of 1, they are the scores"
    assert made.usage.prompt_tokens == len(prompt)


def test_the_context_bounds_beams(engine: TextEngine, folder: Path) -> None:
    prompt = (*random_prompts(VOCAB)[7], *random_prompts(VOCAB)[1])  # 49 tokens of 60
    asked = request(prompt, BeamSearch(3), replace(PLAIN, max_tokens=40))
    bounded = replace(asked, sampling=replace(PLAIN, max_tokens=ROOMY.max_context - len(prompt)))
    assert texts(engine.run([asked])["a"]) == transformers_beams(folder, prompt, bounded)


def test_an_abort_ends_a_search(loaded: LoadedModel, tokenizer: PreTrainedTokenizerFast) -> None:
    roomy = replace(ROOMY, max_context=250, kv_tokens=4096)
    hold = Hold()
    with text_engine(loaded, roomy, tokenizer, hold) as engine:
        engine.submit(request((1, 2, 3), BeamSearch(3), replace(PLAIN, max_tokens=240)))
        hold.reached()
        engine.frontend.abort("a")
        engine.settle()
        hold.release()
        ends, _ = engine.listen({"a"})
        assert ends["a"].finish_reason is FinishReason.ABORTED
        assert ends["a"].usage.compute_seconds > 0
        assert isinstance(engine.run([GenerationRequest("a", token_ids=(5,), sampling=PLAIN)])["a"], GenerationResult)


def test_streamed_beams_come_at_the_end(engine: TextEngine) -> None:
    engine.submit(replace(request((1, 2, 3), BeamSearch(2), PLAIN), stream=True))
    ends, deltas = engine.listen({"a"})
    assert [delta.text for delta in deltas] == [choice.text for choice in ends["a"].choices]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"sampling": replace(PLAIN, temperature=0.5)}, "temperature"),
        ({"sampling": replace(PLAIN, stop=("x",))}, "stop"),
        ({"sampling": replace(PLAIN, repetition_penalty=1.1)}, "repetition_penalty"),
        ({"sampling": replace(PLAIN, frequency_penalty=0.1)}, "frequency_penalty"),
        ({"sampling": replace(PLAIN, presence_penalty=0.1)}, "presence_penalty"),
        ({"sampling": replace(PLAIN, logit_bias=(LogitBias(1, 1.0),))}, "logit_bias"),
        ({"sampling": replace(PLAIN, logprobs=1)}, "logprobs"),
        ({"schema": "{}"}, "schema"),
        ({"stop_repetition": True}, "stop_repetition"),
        ({"n": 4}, "n=4"),
        ({"best_of": 3}, "best_of=3"),
    ],
)
def test_what_beams_cannot_do_is_refused_by_name(fields: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidRequestError, match=named):
        GenerationRequest("a", text="x", **({"sampling": PLAIN, "beam_search": BeamSearch(3)} | fields))


@pytest.mark.parametrize("wrong", [{"width": 1}, {"width": 17}, {"width": 4, "length_penalty": float("nan")}])
def test_bounds_of_a_search(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidRequestError, match="beam_search"):
        BeamSearch(**wrong)


def test_too_many_ends_for_a_width_are_refused(engine: TextEngine) -> None:
    asked = request((1, 2), BeamSearch(16), replace(PLAIN, stop_token_ids=tuple(range(5))))
    end = engine.run([asked])["a"]
    assert isinstance(end, Failure)
    assert isinstance(end.error, InvalidRequestError)
    assert "beam_search" in str(end.error)
