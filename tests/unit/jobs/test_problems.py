"""Validation errors are plain sentences of ours, for every error that pydantic may raise."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

import pytest
from pydantic import AwareDatetime, BaseModel, Field, HttpUrl, ValidationError, field_validator
from pydantic_core import ErrorDetails, PydanticKnownError
from pydantic_core.core_schema import ErrorType

from thothy_ai.jobs.problems import describe, first_problem
from thothy_ai.jobs.schema import line, prose, sentences, title

PLAIN = "without markup or emoji"
HEADING = f"must be a heading: one line, {PLAIN}, with no comma, colon or dash at its beginning"


class Author(BaseModel):
    name: str


class Odd(BaseModel, extra="forbid"):
    source: str = "a"
    audience: Annotated[str, Field(min_length=2, max_length=20)] = "all"
    word: Annotated[str, Field(min_length=1, max_length=1)] = "a"
    count: Annotated[int, Field(ge=1, le=9)] = 3
    share: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 0.5
    exact: bool = False
    tone: Literal["dry", "warm"] = "dry"
    tags: Annotated[tuple[str, ...], Field(max_length=1)] = ()
    readers: Annotated[list[str], Field(min_length=1)] = ["a"]
    author: Author | None = None
    when: AwareDatetime | None = None
    day: date | None = None
    wait: timedelta | None = None
    page: HttpUrl | None = None
    key: UUID | None = None
    code: Annotated[str, Field(pattern="^[a-z]{2}$")] = "de"
    plain: Annotated[str, prose(1, 80)] = "a"
    caption: Annotated[str, title(3, 80)] = "A heading"
    body: Annotated[str, sentences(1, 3, 80)] = "It is a sentence."
    one: Annotated[str, sentences(1, 1, 80)] = "It is a sentence."
    heading: Annotated[str, line(1, 80)] = "a"
    checked: str = ""

    @field_validator("checked")
    @classmethod
    def _check(cls, value: str) -> str:
        if value == "foo":
            raise ValueError("'foo' is not one of bar, baz")
        return value


@pytest.mark.parametrize(
    ("values", "field", "says"),
    [
        ({"source": 7}, "source", "must be text"),
        ({"audience": "x"}, "audience", "must have at least 2 characters"),
        ({"audience": "x" * 21}, "audience", "must have at most 20 characters"),
        ({"word": ""}, "word", "must have at least 1 character"),
        ({"count": "three"}, "count", "must be a whole number"),
        ({"count": 1.5}, "count", "must be a whole number"),
        ({"count": 0}, "count", "must be at least 1"),
        ({"count": 10}, "count", "must be at most 9"),
        ({"share": "half"}, "share", "must be a number"),
        ({"share": 0}, "share", "must be greater than 0.0"),
        ({"share": 1}, "share", "must be less than 1.0"),
        ({"share": float("inf")}, "share", "must be a finite number"),
        ({"exact": "perhaps"}, "exact", "must be true or false"),
        ({"tone": "wet"}, "tone", "must be 'dry' or 'warm'"),
        ({"tags": "ab"}, "tags", "must be a list"),
        ({"tags": ["a", "b"]}, "tags", "must have at most 1 item"),
        ({"tags": [7]}, "tags.0", "must be text"),
        ({"readers": []}, "readers", "must have at least 1 item"),
        ({"author": 7}, "author", "must be an object"),
        ({"author": {}}, "author.name", "is missing"),
        ({"when": "soon"}, "when", "must be a date and time such as 2026-11-21T06:00"),
        ({"when": datetime(2026, 1, 1)}, "when", "must have a time zone"),  # noqa: DTZ001 - that is the mistake
        ({"day": "soon"}, "day", "must be a date such as 2026-11-21"),
        ({"wait": "soon"}, "wait", "must be a duration such as PT2H"),
        ({"page": "nowhere"}, "page", "must be a URL such as https://example.com/page"),
        ({"page": "ftp://a/b"}, "page", "must be a URL that begins with 'http' or 'https'"),
        ({"key": "k"}, "key", "must be a UUID"),
        ({"code": "deu"}, "code", "does not have the expected form"),
        ({"plain": "so 🎉"}, "plain", f"must be one line of plain text, {PLAIN}"),
        ({"caption": ", a comma"}, "caption", HEADING),
        ({"body": "it has no end"}, "body", f"must be 1 to 3 whole sentences on one line, {PLAIN}"),
        ({"one": "it has no end"}, "one", f"must be 1 whole sentence on one line, {PLAIN}"),
        ({"heading": "two\nlines"}, "heading", "must be one line of text, without control characters"),
        ({"checked": "foo"}, "checked", "'foo' is not one of bar, baz"),
        ({"audiense": "all"}, "audiense", "is not a known field; did you mean 'audience'?"),
    ],
)  # fmt: skip
def test_what_is_wrong(values: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Odd.model_validate(values)
    assert first_problem(caught.value, Odd.model_fields) == (field, says)


def test_an_unknown_field_lists_the_known_ones_if_none_is_close() -> None:
    with pytest.raises(ValidationError) as caught:
        Odd.model_validate({"zzz": 1})
    assert first_problem(caught.value, ["source", "tone"])[1] == "is not a known field; available: source, tone"
    assert first_problem(caught.value)[1] == "is not a known field"


def test_text_that_is_not_json() -> None:
    with pytest.raises(ValidationError) as caught:
        Odd.model_validate_json('{"source": ')
    assert first_problem(caught.value) == ("", "is not JSON: EOF while parsing a value at line 1 column 11")


CONTEXT = {
    "attribute": "a", "error": "e", "method_name": "m", "class_name": "C", "gt": 1, "ge": 1, "lt": 1, "le": 1,
    "multiple_of": 2, "field_type": "List", "min_length": 1, "max_length": 2, "actual_length": 3, "pattern": "^secret$",
    "expected": "'a' or 'b'", "encoding": "utf-8", "encoding_error": "e", "tz_expected": 0, "tz_actual": 1,
    "class": "C", "discriminator": "d", "tag": "t", "expected_tags": "u", "expected_schemes": "'http'",
    "expected_version": 4, "max_digits": 1, "decimal_places": 1, "whole_digits": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", get_args(ErrorType))
def test_every_error_of_pydantic_is_a_plain_phrase(name: Any) -> None:
    message = PydanticKnownError(name, CONTEXT).message()
    problem = ErrorDetails(type=name, loc=("field",), msg=message, input=None, ctx=dict(CONTEXT))
    says = describe(problem)
    assert says
    assert says[0].islower()
    for leak in ("secret", "Input", "input", "Value error", "\n"):
        assert leak not in says
