"""An output that repeats itself is found within three periods; what repeats by its nature is left alone."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from thothy_ai.engine.text.repetition import MIN_TOKENS, PERIODS, RepetitionDetector
from thothy_ai.engine.text.token_bytes import TokenBytes

LETTERS = TokenBytes(tuple(f" w{number}".encode() for number in range(300)), drops_first_space=False)
LOOP = "The garden waits for rain and the kettle sings. "
START = "Numbers 12, 34 and 567 stay early in the wind while sentences go on and on without an end in sight. "


def found_at(tokens: Sequence[int], vocabulary: TokenBytes = LETTERS, schema: str | None = None) -> int | None:
    """How many tokens were pushed, one by one, when a repetition was found."""
    detector = RepetitionDetector(vocabulary, schema)
    for count, token in enumerate(tokens, 1):
        detector.push((token,))
        if detector.found:
            return count
    return None


@pytest.mark.parametrize("period", [1, 2, 3, 5, 7, 8, 9, 13, 31, 63, 64])
@pytest.mark.parametrize("before", [0, 1, 2, 3, 50])
def test_three_periods_are_a_loop(period: int, before: int) -> None:
    tokens = [*range(100, 100 + before), *list(range(period)) * 100]
    least = before + max(PERIODS * period, MIN_TOKENS)
    found = found_at(tokens)
    assert found is not None
    assert least <= found < least + 4


def test_longer_periods_and_fewer_are_none() -> None:
    assert found_at(list(range(65)) * 5) is None
    assert found_at(list(range(40)) * 2 + [*range(39)]) is None
    assert found_at([7] * (MIN_TOKENS - 1)) is None


LOOPS = st.builds(
    lambda head, period, tail: head + period * 40 + tail,
    st.lists(st.integers(0, 25), max_size=30),
    st.lists(st.integers(0, 25), min_size=1, max_size=9),
    st.lists(st.integers(0, 25), max_size=20),
)


@given(st.lists(st.integers(0, 3), max_size=400), st.integers(1, 5))
def test_what_is_found_is_periodic(tokens: list[int], size: int) -> None:
    """However the tokens arrive, and whatever else repeats in them."""
    detector = RepetitionDetector(LETTERS, None)
    for start in range(0, len(tokens), size):
        detector.push(tokens[start : start + size])
        if detector.found:
            text = tokens[: start + size]
            assert any(
                text[-count:-period] == text[-count + period :]
                for period in range(1, 65)
                if len(text) >= (count := max(PERIODS * period, MIN_TOKENS))
            )
            return


@given(st.lists(st.integers(0, 299), min_size=8, max_size=40, unique=True), st.integers(0, 30))
def test_a_loop_is_found_however_its_tokens_arrive(block: list[int], lead: int) -> None:
    detector = RepetitionDetector(LETTERS, None)
    detector.push(block[:lead] + block * 2)
    detector.push(block + block[:3])
    assert detector.found


@given(LOOPS, st.lists(st.integers(1, 17), min_size=1, max_size=20))
def test_a_loop_is_found_at_the_same_token_however_many_come_together(tokens: list[int], sizes: list[int]) -> None:
    """A step with drafts gives a text up to 17 tokens."""
    detector, place = RepetitionDetector(LETTERS, None), 0
    for size in itertools.cycle(sizes):
        taken = detector.push(tokens[place : place + size])
        place += taken
        if detector.found or place == len(tokens):
            break
    assert (place if detector.found else None) == found_at(tokens)


def test_an_inner_repetition_does_not_hide_the_outer_one() -> None:
    inner = list(range(8))
    assert found_at([*inner, 50, *inner, 51, 52, *inner, 53] * 4) is not None


@pytest.mark.parametrize(
    "text",
    [
        "ha ha ha ha ha ha ha",
        "| --- | --- | --- | --- | --- | --- |\n| a | b | c | d | e | f |\n",
        "-" * 60,
        "0, 0, 0, 0, 0, 0, 0, 0, 0, 0",
        "one two three. " * 2,
        "1. The kettle sings. 2. The garden waits. 3. The kettle waits. 4. The garden sings.",
    ],
)
def test_what_people_write_is_no_loop(tokenizer: PreTrainedTokenizerFast, vocabulary: TokenBytes, text: str) -> None:
    assert found_at(tokenizer.encode(START + text + START, add_special_tokens=False), vocabulary) is None


def test_signs_may_repeat_longer_than_words() -> None:
    table = TokenBytes((b"-", b" a"), drops_first_space=False)
    assert found_at([0] * 95, table) is None
    assert found_at([0] * 200, table) is not None
    assert found_at([1] * 30, table) is not None


@pytest.mark.parametrize(
    ("value", "loops"),
    [
        ([{"verdict": "supported", "sure": True}] * 20, False),
        (["not found in the source at all"] * 20, False),
        ([LOOP + "Headline and summary points."] * 4, True),
        ([{"point": LOOP.strip(), "language": "en"}] * 6, True),
        ({"body": START + LOOP * 4}, True),
        ({"body": START, "points": ["one", "two", "one", "two", "one", "two"]}, False),
    ],
)
def test_json(tokenizer: PreTrainedTokenizerFast, vocabulary: TokenBytes, value: object, *, loops: bool) -> None:
    assert loops_under({}, value, tokenizer, vocabulary) == loops


def loops_under(
    schema: object,
    value: object,
    tokenizer: PreTrainedTokenizerFast,
    vocabulary: TokenBytes,
    separators: Sequence[str] = (",", ":"),
) -> bool:
    text = json.dumps(value, separators=(separators[0], separators[1]), ensure_ascii=False)
    tokens = tokenizer.encode(text, add_special_tokens=False)
    return found_at(tokens, vocabulary, json.dumps(schema)) is not None


def array(items: object, count: int) -> dict[str, object]:
    return {"type": "array", "items": items, "minItems": count, "maxItems": count}


PROSE = "all of the words of this sentence are from the schema itself"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (array({"type": "boolean"}, 32), [True] * 32),
        (array({"type": "null"}, 64), [None] * 64),
        (array(array({"enum": [0, 1]}, 8), 16), [[0, 1, 0, 0, 1, 1, 0, 1]] * 16),
        (array({"type": "integer"}, 64), [0] * 64),
        (array({"type": "integer"}, 108), [*range(1, 10)] * 12),
        (array({"type": "number"}, 50), [0.25, -1.5e9] * 25),
        (array({"type": "object", "maxProperties": 0}, 90), [{}] * 90),
        (array(array({}, 0), 90), [[]] * 90),
        ({"type": "integer"}, int("12" * 80)),
        (array({"type": "object", "properties": {"n": {"type": "null"}}}, 40), [{"n": None}] * 40),
        (array({"type": "string", "pattern": "^[01 ]{31}$"}, 20), [" ".join("01" * 8)] * 20),
        (array({"const": PROSE}, 30), [PROSE] * 30),
        (array({"enum": [PROSE + ' "é"', "no"]}, 30), [PROSE + ' "é"'] * 30),
        (array({"type": "object", "properties": {PROSE: {"type": "integer"}}}, 30), [{PROSE: 1}] * 30),
        ({"const": "ha " * 60}, "ha " * 60),
        ({"enum": ["no", "-" * 200]}, "-" * 200),
        ({"type": "string", "pattern": "^(ha ){60}$"}, "ha " * 60),
        ({"type": "string", "pattern": "^[01]{200}$"}, "01" * 100),
        ({"type": "string", "minLength": 180}, "ha " * 60),
    ],
)
@pytest.mark.parametrize("separators", [[",", ":"], [", ", ": "]])
def test_what_a_schema_demands_is_no_loop(
    tokenizer: PreTrainedTokenizerFast, vocabulary: TokenBytes, schema: object, value: object, separators: list[str]
) -> None:
    assert not loops_under({"properties": {"a": schema, "b": schema}}, {"a": value}, tokenizer, vocabulary, separators)
    assert not loops_under(schema, value, tokenizer, vocabulary, separators)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, LOOP * 4),
        ({"type": "string"}, 'a \\ b " c ' + LOOP * 4),
        ({"type": "string"}, "-" * 200),
        ({"type": "string", "minLength": 40}, LOOP * 8),
        ({"type": "string", "pattern": "^[^x]{2,900}$"}, LOOP * 4),
        (array({"type": "string"}, 9), [True] * 40 + [LOOP * 4]),
        (array({"type": "string"}, 9), [LOOP] * 9),
        ({"enum": [LOOP]}, {"text": LOOP * 5}),
    ],
)
def test_what_a_model_repeats_in_strings_is_a_loop(
    tokenizer: PreTrainedTokenizerFast, vocabulary: TokenBytes, schema: object, value: object
) -> None:
    assert loops_under(schema, value, tokenizer, vocabulary)
