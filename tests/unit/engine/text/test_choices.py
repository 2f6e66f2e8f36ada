"""Several choices over one prompt: the same as by themselves, from one prefill, ranked where they should be."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from tests.support.hold import Hold
from tests.support.loading import load_model
from tests.support.oracle import ROOMY
from tests.support.text_engine import TextEngine, text_engine
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api import Delta, FinishReason, GenerationRequest, GenerationResult, SamplingParams
from thothy_ai.engine.api.backend import Failure
from thothy_ai.engine.api.errors import InvalidRequestError, NoFiniteScoreError, PromptTooLongError
from thothy_ai.engine.text.followers import candidate_seed, core_ids
from thothy_ai.engine.weights.loader import LoadedModel

PROMPT = tuple(range(3, 33))
DRAWN = SamplingParams(max_tokens=12, temperature=0.9, seed=11, ignore_eos=True)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tiny_model("llama", tmp_path_factory.mktemp("choices"))
    return load_model(folder, device=torch.device("cpu"), dtype=torch.float32, cache_dir=None)


@pytest.fixture
def engine(loaded: LoadedModel, tokenizer: PreTrainedTokenizerFast) -> Iterator[TextEngine]:
    with text_engine(loaded, ROOMY, tokenizer) as engine:
        yield engine


def ask(id_: str, sampling: SamplingParams = DRAWN, **fields: object) -> GenerationRequest:
    return GenerationRequest(id_, token_ids=PROMPT, sampling=sampling, **fields)


def result(engine: TextEngine, request: GenerationRequest) -> GenerationResult:
    end = engine.run([request])[request.id]
    assert isinstance(end, GenerationResult)
    return end


@pytest.mark.parametrize(("overlap", "prefix_cache"), list(itertools.product([False, True], repeat=2)))
def test_each_choice_is_what_it_would_be_alone(
    loaded: LoadedModel, tokenizer: PreTrainedTokenizerFast, *, overlap: bool, prefix_cache: bool
) -> None:
    options = replace(ROOMY, overlap=overlap, prefix_cache=prefix_cache)
    seeds = [11, *(candidate_seed(11, number) for number in range(1, 5))]
    alone = [ask(f"alone {place}", replace(DRAWN, seed=seed)) for place, seed in enumerate(seeds)]
    with text_engine(loaded, options, tokenizer) as engine:
        together = result(engine, ask("five", n=5))
        ends = engine.run(alone)
    texts = [each.text for each in together.choices]
    assert texts == [ends[each.id].text for each in alone]
    assert len(set(texts)) == 5


def test_the_prompt_is_computed_once_and_all_seconds_are_the_request_s(engine: TextEngine) -> None:
    made = result(engine, ask("eight", n=8))
    stats = engine.stats().core
    whole_blocks = (len(PROMPT) - 1) // ROOMY.block_size * ROOMY.block_size
    assert stats.prefill_tokens == len(PROMPT) + 7 * (len(PROMPT) - whole_blocks)
    assert (made.usage.prompt_tokens, made.usage.cached_tokens) == (len(PROMPT), 0)
    assert made.usage.output_tokens == 8 * 12 == stats.output_tokens
    assert made.usage.compute_seconds == pytest.approx(stats.busy_seconds, rel=1e-6)


def test_the_best_have_the_highest_mean_log_probability(engine: TextEngine) -> None:
    listed = replace(DRAWN, logprobs=0)
    every = result(engine, ask("all", listed, n=6)).choices
    means = [sum(each.logprob for each in choice.logprobs if each) / 12 for choice in every]
    assert [choice.mean_logprob for choice in every] == pytest.approx(means)
    best = result(engine, ask("best", n=2, best_of=6))
    ranked = sorted(every, key=lambda choice: -(choice.mean_logprob or 0.0))[:2]
    assert [choice.text for choice in best.choices] == [choice.text for choice in ranked]
    assert best.mean_logprob == pytest.approx(ranked[0].mean_logprob, abs=1e-5)
    assert best.logprobs == (), "they were not asked for"
    assert best.usage.output_tokens == 6 * 12
    shown = result(engine, ask("shown", replace(DRAWN, logprobs=2), n=1, best_of=6))
    assert shown.text == best.text
    assert [len(each.top_tokens) for each in shown.logprobs if each] == [2] * 12


def test_choices_end_by_themselves(engine: TextEngine) -> None:
    every = result(engine, ask("all", n=4)).choices
    stop = every[1].token_ids[4]
    ended = result(engine, ask("ended", replace(DRAWN, stop_token_ids=(stop,)), n=4)).choices
    for choice, whole in zip(ended, every, strict=True):
        cut = whole.token_ids.index(stop) if stop in whole.token_ids else 12
        assert choice.token_ids == whole.token_ids[:cut]
        assert choice.finish_reason is (FinishReason.STOP if cut < 12 else FinishReason.LENGTH)


@pytest.mark.parametrize("late", [False, True])
def test_deltas_are_by_choice(engine: TextEngine, *, late: bool) -> None:
    sampling = replace(DRAWN, max_tokens=20)
    with engine.at_once():
        engine.submit(ask("a", sampling, n=3, stream=not late, report_after=0))
        if late:
            engine.frontend.stream("a")
    ends, deltas = engine.listen({"a"})
    texts = ["".join(delta.text for delta in deltas if delta.choice == place) for place in range(3)]
    assert texts == [choice.text for choice in ends["a"].choices]


def test_ranked_texts_stream_at_the_end(engine: TextEngine) -> None:
    engine.submit(ask("a", n=2, best_of=4, stream=True))
    ends, deltas = engine.listen({"a"})
    assert deltas == [Delta("a", each.text, each.token_ids, place) for place, each in enumerate(ends["a"].choices)]


def test_only_the_first_choice_reports_early(engine: TextEngine) -> None:
    engine.submit(ask("a", n=3, report_after=4))
    ends, deltas = engine.listen({"a"})
    assert [delta.choice for delta in deltas] == [0]
    assert ends["a"].text.startswith(deltas[0].text)


def test_an_abort_ends_all_choices(loaded: LoadedModel, tokenizer: PreTrainedTokenizerFast) -> None:
    endless, hold = replace(DRAWN, max_tokens=200), Hold()
    with text_engine(loaded, replace(ROOMY, max_context=250, kv_tokens=4096), tokenizer, hold) as engine:
        engine.submit(ask("a", endless, n=4, stream=True))
        engine.heard()
        engine.frontend.abort("a")
        engine.settle()
        hold.release()
        ends, _ = engine.listen({"a"})
        assert ends["a"].finish_reason is FinishReason.ABORTED
        assert ends["a"].usage.output_tokens < 4 * 200
        assert result(engine, ask("a")).text, "its ids are free again"


def test_ids_in_flight_are_refused_whole(engine: TextEngine) -> None:
    own, other = core_ids("a", 2)
    with engine.at_once():
        engine.submit(ask("a", n=2))
        engine.submit(ask(other))
        engine.submit(ask("b"))
    ends, _ = engine.listen({own, other, "b"})
    assert isinstance(ends[other], Failure)
    assert isinstance(ends[other].error, InvalidRequestError)
    assert isinstance(ends["a"], GenerationResult)


def test_what_cannot_be_served_fails_once(engine: TextEngine) -> None:
    long = replace(ask("long", n=3), token_ids=(1,) * 60)
    unknown = ask("unknown", replace(DRAWN, stop_token_ids=(131,)), n=3)
    ends = engine.run([long, unknown])
    assert isinstance(ends["long"].error, PromptTooLongError)
    assert isinstance(ends["unknown"].error, InvalidRequestError)
    assert "stop_token_ids" in str(ends["unknown"].error)


def test_a_broken_choice_fails_the_request_with_its_usage(
    tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast
) -> None:
    folder = tiny_model("llama", tmp_path_factory.mktemp("broken"))
    broken = load_model(folder, device=torch.device("cpu"), dtype=torch.float32, cache_dir=None)
    with text_engine(broken, ROOMY, tokenizer) as engine:
        whole = result(engine, ask("whole", n=3)).choices
    token = next(t for t in whole[1].token_ids[:-2] if t not in (*PROMPT, *whole[0].token_ids, *whole[2].token_ids))
    with torch.inference_mode():
        broken.model.decoder.embedding.table[token] = torch.nan
    with text_engine(broken, ROOMY, tokenizer) as engine:
        end = engine.run([ask("a", n=3)])["a"]
        assert isinstance(end, Failure)
        assert isinstance(end.error, NoFiniteScoreError)
        assert end.usage is not None
        assert end.usage.compute_seconds == pytest.approx(engine.stats().core.busy_seconds, rel=1e-6)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"n": 0}, "n=0"),
        ({"n": 65}, "n=65"),
        ({"n": 3, "best_of": 2}, "best_of=2"),
        ({"best_of": 65}, "best_of=65"),
        ({"n": 2, "sampling": SamplingParams()}, "n=2"),
        ({"best_of": 2, "sampling": SamplingParams()}, "best_of=2"),
        ({"n": 64, "sampling": replace(DRAWN, max_tokens=30_000, logprobs=20)}, "logprobs=20"),
        ({"schema": "{}", "sampling": replace(DRAWN, stop=("x",))}, "stop is not possible with a schema"),
        ({"schema": "{}", "sampling": replace(DRAWN, stop_token_ids=(5,))}, "stop_token_ids is not possible"),
    ],
)
def test_bounds_are_checked_by_name(fields: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidRequestError, match=named):
        GenerationRequest("a", text="x", **({"sampling": DRAWN} | fields))
