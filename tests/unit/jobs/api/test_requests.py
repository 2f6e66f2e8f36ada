"""Validation of requests: every error names the field and the reason."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from thothy_ai.jobs import Hook, ReportSection, Request, Translation, TrendSummary
from thothy_ai.jobs.text.strings import MAX_CHARACTERS

HEADINGS = (
    'The "new" normal',
    "#1: why it grows",
    "Up 🎉 and *up* <again>",
    "C:\\new\\t",
    "{a|b} = [c]",
    "発酵 – 100 %",
)


def refusal(kind: type[Request], **fields: object) -> tuple[str, str]:
    with pytest.raises(ValidationError) as caught:
        kind(**fields)
    (error,) = caught.value.errors()
    return str(error["loc"][0]), error["msg"]


@pytest.mark.parametrize("kind", [Hook, ReportSection, Translation, TrendSummary])
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", "is empty"),
        (" \n\t ", "is empty"),
        ("a\x00b", "contains a NUL character"),
        ("a\ud800b", "contains a lone surrogate (U+D800)"),
        ("a" * (MAX_CHARACTERS + 1), "has 1,048,577 characters; the limit is 1,048,576"),
        (None, "valid string"),  # pydantic's words; `jobs/problems.py` has ours
    ],
)
def test_a_bad_source_is_named(kind: type[Request], source: object, expected: str) -> None:
    field, message = refusal(kind, source=source)
    assert field == "source"
    assert expected in message


@pytest.mark.parametrize(
    ("kind", "fields", "field"),
    [
        (Hook, {"audience": "x" * 201}, "audience"),
        (Hook, {"audience": " "}, "audience"),
        (Hook, {"channel": "billboard"}, "channel"),
        (Hook, {"locale": "tlh"}, "locale"),
        (ReportSection, {"topic": "\x00"}, "topic"),
        (TrendSummary, {"translate_to": ["de", "tlh"]}, "translate_to"),
        (TrendSummary, {"mood": "bright"}, "mood"),
        (Translation, {"target_locale": "german"}, "target_locale"),
        (Translation, {"passage": "b " * 100_001}, "passage"),
    ],
)
def test_a_bad_field_is_named(kind: type[Request], fields: dict[str, object], field: str) -> None:
    assert refusal(kind, source="A text.", **fields)[0] == field


@pytest.mark.parametrize("heading", HEADINGS)
def test_a_heading_may_be_any_line(heading: str) -> None:
    assert ReportSection(source="A text.", heading=heading).heading == heading


@pytest.mark.parametrize("heading", ["two\nlines", "a\ttab", "a\u2028b", "x" * 121])
def test_a_heading_is_one_line(heading: str) -> None:
    assert refusal(ReportSection, source="A text.", heading=heading)[0] == "heading"


def test_a_long_source_needs_a_passage_to_translate() -> None:
    source = "Cabbage waits. " * 20_000
    assert refusal(Translation, source=source) == (
        "passage",
        "pass a passage of at most 200,000 characters; a job cannot translate 300,000",
    )
    assert Translation(source=source, passage=" Cabbage waits. ").original == "Cabbage waits."


def test_a_source_of_maximum_length_is_accepted() -> None:
    assert Hook(source="a" * MAX_CHARACTERS)


def test_an_error_does_not_contain_the_text() -> None:
    with pytest.raises(ValidationError) as caught:
        Hook(source="secret plans\x00")
    assert "secret" not in str(caught.value)


def test_requests_are_values() -> None:
    one, other = (TrendSummary(source="A text.", translate_to=("de",)) for _ in range(2))
    assert one == other
    assert TrendSummary.model_validate_json(one.model_dump_json()) == one
    with pytest.raises(ValidationError, match="frozen"):
        one.audience = "others"
