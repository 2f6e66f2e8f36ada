"""What ends a text before its limit: repetition, and stop strings."""

from __future__ import annotations

import pytest

from tests.support.patience import PATIENCE
from tests.support.scripted_core import Harness
from thothy_ai.engine.api import FinishReason, GenerationResult, SamplingParams


def repetitive(harness: Harness, count: int) -> list[int]:
    return harness.encode("The kettle sings and the garden waits for rain. ") * count


@pytest.mark.parametrize(("start", "fields"), [('"', {"schema": "{}"}), ("", {"stop_repetition": True})], ids=str)
def test_an_output_that_repeats_itself_is_stopped_and_kept(
    harness: Harness, start: str, fields: dict[str, object]
) -> None:
    sink = harness.submit(sampling=SamplingParams(max_tokens=500), **fields)
    harness.accepted()
    opening, tokens = harness.encode(start), repetitive(harness, 5)
    for token in (*opening, *tokens):
        harness.core.tokens("a", token)
    assert harness.core.aborted.get(timeout=PATIENCE) == ("a", FinishReason.REPETITION)
    harness.core.finish("a", FinishReason.REPETITION)
    (result,) = sink.until_end()
    assert isinstance(result, GenerationResult)
    assert result.finish_reason is FinishReason.REPETITION
    kept = result.usage.output_tokens
    assert len(tokens) * 3 / 5 <= kept - len(opening) < len(tokens) * 3 / 5 + 4
    assert result.text.startswith(f"{start}The kettle sings and the garden")
    text = harness.frontend.stats().text
    assert (text.repetitions, text.saved_tokens) == (1, 500 - kept)
    assert harness.core.aborted.empty()


@pytest.mark.parametrize("stop", [(), ("garden waits",), ("the kettle is cold",)], ids=str)
def test_a_text_ends_at_the_same_token_however_many_come_together(harness: Harness, stop: tuple[str, ...]) -> None:
    """A step with drafts gives a text up to 17 tokens."""
    tokens, results = repetitive(harness, 5), list[GenerationResult]()
    for name, size in (("a", 1), ("b", 17)):
        sink = harness.submit(name, sampling=SamplingParams(max_tokens=500, stop=stop), stop_repetition=True)
        harness.accepted()
        for place in range(0, len(tokens), size):
            harness.core.tokens(name, *tokens[place : place + size])
        harness.core.finish(name, FinishReason.LENGTH)
        results.append(sink.until_end()[-1])
    one, many = results
    assert one.finish_reason is (FinishReason.STOP if stop[:1] == ("garden waits",) else FinishReason.REPETITION)
    assert (many.token_ids, many.text, many.finish_reason) == (one.token_ids, one.text, one.finish_reason)


@pytest.mark.parametrize("fields", [{}, {"schema": "{}", "stop_repetition": False}], ids=str)
def test_repetition_is_no_reason_where_it_is_allowed(harness: Harness, fields: dict[str, object]) -> None:
    sink = harness.submit(**fields)
    harness.accepted()
    for token in repetitive(harness, 5):
        harness.core.tokens("a", token)
    harness.core.finish("a", FinishReason.LENGTH)
    (result,) = sink.until_end()
    assert isinstance(result, GenerationResult)
    assert result.finish_reason is FinishReason.LENGTH
    assert harness.core.aborted.empty()


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_the_text_and_cuts_what_came_meanwhile(harness: Harness, *, stream: bool) -> None:
    sink = harness.submit(stream=stream, sampling=SamplingParams(stop=("waits for", "zzz")))
    harness.accepted()
    tokens = harness.encode("the garden waits for rain")
    harness.core.tokens("a", *tokens)
    assert harness.core.aborted.get(timeout=PATIENCE) == ("a", FinishReason.STOP)
    harness.core.tokens("a", *harness.encode("more"))
    harness.core.finish("a", FinishReason.LENGTH)
    *deltas, result = sink.until_end()
    assert result.text == "the garden "
    assert result.finish_reason is FinishReason.STOP
    assert result.usage.output_tokens == len(result.token_ids) < len(tokens)
    assert result.usage.compute_seconds == 0.5
    assert "".join(delta.text for delta in deltas) == ("the garden " if stream else "")
    assert harness.core.aborted.empty()


def test_what_a_stop_string_held_back_comes_out_at_the_end(harness: Harness) -> None:
    sink = harness.submit(stream=True, sampling=SamplingParams(stop=("rain!",)))
    harness.accepted()
    harness.core.tokens("a", *harness.encode("for rain"))
    harness.core.finish("a")
    *deltas, result = sink.until_end()
    assert result.text == "for rain" == "".join(delta.text for delta in deltas)
    assert tuple(token for delta in deltas for token in delta.token_ids) == result.token_ids


def test_the_text_of_the_minimum_has_no_stop_strings(harness: Harness) -> None:
    """Neither whole ones nor the beginnings of some: they are looked for in what follows."""
    sampling = SamplingParams(stop=("one", "two three"), min_tokens=3)
    sink = harness.submit(sampling=sampling)
    harness.accepted()
    for token in harness.encode("one two three one")[:3]:
        harness.core.tokens("a", token)
    rest = harness.encode("one two three one")[3:]
    harness.core.tokens("a", *rest)
    assert harness.core.aborted.get(timeout=PATIENCE) == ("a", FinishReason.STOP)
    harness.core.finish("a")
    result = sink.next()
    assert isinstance(result, GenerationResult)
    early = len(harness.encode("one two three one")[:3])
    assert result.text.startswith("one")
    assert len(result.token_ids) > early
