"""Condensing long sources, with scripted answers: verbatim passages that fit, whatever the engine and the model do."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from thothy_ai.jobs import checks
from thothy_ai.jobs.api.plan import Call, Context, End, Message, Output, Sampling, run
from thothy_ai.jobs.evidence import quotation, spans
from thothy_ai.jobs.plans.documents import (
    MAX_BATCHES,
    MAX_CALLS,
    MAX_SOURCE_TOKENS,
    asked,
    batches,
    condensed,
    room_for_source,
    shorter,
    side_by_side,
)
from thothy_ai.jobs.text.division import estimated_tokens

CONTEXT = Context(max_context=4096)
SOURCE = "".join(
    f"## Town number {town}\n\nThe town of Halle {town} opened {town + 3} tram lines in spring. Its mayor expects "
    f"{town * 7} thousand riders a day. Nobody has counted them yet, which the council regrets.\n\n"
    for town in range(150)
)


def chosen(call: Call) -> Output:
    """The last passages that may be named."""
    field = call.schema["properties"]["passages"]
    last, count = field["items"]["maximum"], field["maxItems"]
    return Output(json.dumps({"passages": list(range(last, last - count, -1))}))


def pieces(text: str) -> list[str]:
    return [" ".join(piece.split()) for piece in re.split(r"\[…\]|^#.*$", text, flags=re.MULTILINE) if piece.strip()]


def test_a_source_that_fits_is_taken_as_it_is_without_a_call() -> None:
    assert run(condensed("A short source.", CONTEXT), lambda _: pytest.fail("called")) == "A short source."


def test_a_long_source_becomes_passages_of_it_under_their_headings() -> None:
    text = run(condensed(SOURCE, CONTEXT), chosen)
    assert room_for_source(CONTEXT) / 4 < estimated_tokens(text) <= room_for_source(CONTEXT)
    whole = " ".join(SOURCE.split())
    assert pieces(text)
    assert all(piece in whole for piece in pieces(text))
    for town in re.findall(r"town of Halle (\d+)", text):
        assert f"## Town number {town}\n" in text


def test_passages_keep_their_order() -> None:
    towns = [int(town) for town in re.findall(r"town of Halle (\d+)", run(condensed(SOURCE, CONTEXT), chosen))]
    assert towns == sorted(towns)


def test_a_prompt_has_no_more_than_there_is_room_for() -> None:
    def answer(call: Call) -> Output:
        tokens = sum(estimated_tokens(message.content) for message in call.messages)
        assert tokens + call.sampling.max_tokens < CONTEXT.max_context
        assert call.sampling.temperature == 0
        return chosen(call)

    run(condensed(SOURCE, CONTEXT), answer)


@pytest.mark.parametrize(
    "output",
    [
        Output("", End.PROMPT_TOO_LONG),
        Output('{"passages":[1,', End.TOKEN_LIMIT),
        Output("[]"),
        Output('{"passages":[0,900000,"x"]}'),
        Output('{"passages":[]}'),
        Output("", End.REPETITION),
    ],
)
def test_whatever_comes_back_the_result_is_verbatim_and_fits(output: Output) -> None:
    text = run(condensed(SOURCE, CONTEXT), lambda _: output)
    assert 0 < estimated_tokens(text) <= room_for_source(CONTEXT)
    assert all(piece in " ".join(SOURCE.split()) for piece in pieces(text))


def test_a_refused_part_is_halved() -> None:
    sizes: list[int] = []

    def answer(call: Call) -> Output:
        count = call.schema["properties"]["passages"]["items"]["maximum"]
        sizes.append(count)
        return Output("", End.PROMPT_TOO_LONG) if count > 15 else chosen(call)

    run(condensed(SOURCE, CONTEXT), answer)
    assert min(sizes) <= 15 < max(sizes)


def test_siblings_condense_a_source_with_the_same_calls() -> None:
    first, second = (next(condensed(SOURCE, CONTEXT)) for _ in range(2))
    assert first == second


def test_a_megabyte_is_condensed() -> None:
    source = SOURCE * (2**20 // len(SOURCE))
    steps: list[str] = []
    text = run(condensed(source, CONTEXT), lambda call: steps.append(call.step) or chosen(call))  # type: ignore[func-returns-value]
    assert set(steps) == {"condense"}
    assert estimated_tokens(text) <= room_for_source(CONTEXT)


def test_a_large_context_does_not_take_more_than_models_can_overlook() -> None:
    assert room_for_source(Context(max_context=1_000_000)) == MAX_SOURCE_TOKENS
    assert room_for_source(Context(max_context=1_200)) == 400


def test_a_refused_question_is_asked_again_about_less() -> None:
    lengths: list[int] = []

    def call(text: str, _: Context) -> Call:
        return Call((Message("user", text),), {"properties": {}}, Sampling(9), step="question")

    def answer(asked_for: Call) -> Output:
        if asked_for.step != "question":
            return chosen(asked_for)
        lengths.append(len(asked_for.messages[0].content))
        return Output("", End.PROMPT_TOO_LONG) if len(lengths) < 3 else Output("{}")

    text, output = run(asked(SOURCE, replace(CONTEXT, max_context=8192), call), answer)
    assert output == Output("{}")
    assert len(text) == lengths[-1]
    assert lengths == sorted(lengths, reverse=True)


def test_a_question_that_nothing_fits_ends() -> None:
    def call(text: str, _: Context) -> Call:
        return Call((Message("user", text),), {}, Sampling(9))

    _, output = run(asked(SOURCE, CONTEXT, call), lambda _: Output("", End.PROMPT_TOO_LONG))
    assert output.end is End.PROMPT_TOO_LONG


def test_a_shorter_context_is_half_of_it() -> None:
    assert shorter(CONTEXT).max_context == 2048


@pytest.mark.parametrize(("count", "steps"), [(0, 0), (MAX_CALLS, 1), (MAX_CALLS + 1, 2), (5_000, MAX_BATCHES)])
def test_many_calls_take_few_steps(count: int, steps: int) -> None:
    calls = [Call((Message("user", str(number)),), {}, Sampling(9)) for number in range(count)]
    outputs = run(side_by_side(calls), lambda call: Output(call.messages[0].content))
    assert [output.text for output in outputs] == [str(number) for number in range(count)]
    assert len(list(batches(calls))) == steps


TEXT = """# A heading

The shop sold 418 bikes last
year. "People come in," says its manager. Why?

A line that is like a heading

- An item without a full stop
- Yes

| town | bikes |
|---|---|
| Freiburg | 418 bicycles |

```
code_is_no_evidence = True
```
"""


def test_spans_are_sentences_items_and_rows_each_on_one_line() -> None:
    assert spans(TEXT, "en") == (
        "The shop sold 418 bikes last year.",
        '"People come in," says its manager.',
        "An item without a full stop",
        "town | bikes",
        "Freiburg | 418 bicycles",
    )
    assert not any(checks.quoted("quote", span, TEXT) for span in spans(TEXT, "en"))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("夜间列车今年全部客满了。运营商订购了很多新的车厢。", 2),
        ("ราคาตั๋วรถไฟกลางคืนเพิ่มขึ้นมากในปีนี้เพราะมีผู้โดยสารจำนวนมากและมีรถน้อยเกินไปสำหรับทุกคน", 1),
        (" ".join(f"ราคาตั๋วรถไฟกลางคืนเพิ่มขึ้นมากในปี {year}" for year in range(30)), 15),
    ],
)
def test_spans_of_other_scripts(text: str, count: int) -> None:
    assert len(spans(text, "zh")) == count


def test_a_quotation_is_one_of_the_spans_or_anything_if_there_are_too_many() -> None:
    assert quotation(TEXT, "en") == {"enum": list(spans(TEXT, "en"))}
    assert quotation("[x](https://x.org)", "en")["type"] == "string"
    long = " ".join(f"Sentence number {number} is here to be quoted." for number in range(5_000))
    assert "pattern" in quotation(long, "en")
