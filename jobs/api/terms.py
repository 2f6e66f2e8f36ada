"""Short texts of requests: lines, names and phrases, and whether one phrase contains another."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

MAX_TERMS = 100
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SPACED = re.compile(r"[^\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\uffff]")
_SPACES = re.compile(r"\s+")


def contains(text: str, phrase: str) -> bool:
    """Whether a text has a phrase, in any case, and as whole words in scripts that have spaces between words."""
    wanted = folded(phrase)
    before = r"(?<!\w)" if _SPACED.match(wanted[:1]) else ""
    after = r"(?!\w)" if _SPACED.match(wanted[-1:]) else ""
    return bool(re.search(f"{before}{re.escape(wanted)}{after}", folded(text)))


def _check_line(value: str) -> str:
    if _CONTROL.search(value):
        raise PydanticCustomError("not_a_line", "must be one line, without control characters")
    return value.strip()


def _check_distinct(terms: tuple[str, ...]) -> tuple[str, ...]:
    """Drop duplicates. Two spellings of one term contradict each other."""
    spelled: dict[str, str] = {}
    for term in terms:
        other = spelled.setdefault(folded(term), term)
        if other != term:
            raise PydanticCustomError(
                "two_spellings", "has '{term}' in another spelling, too: '{other}'", {"term": term, "other": other}
            )
    return tuple(spelled.values())


def folded(text: str) -> str:
    """A text in lower case, with single spaces."""
    return _SPACES.sub(" ", text).casefold()


ShortText = Annotated[str, Field(max_length=200), AfterValidator(_check_line)]
Term = Annotated[str, Field(max_length=80), AfterValidator(_check_line)]
BrandTerms = Annotated[tuple[Term, ...], Field(max_length=MAX_TERMS), AfterValidator(_check_distinct)]
BannedPhrases = Annotated[
    tuple[Term, ...],
    Field(max_length=MAX_TERMS),
    AfterValidator(lambda phrases: tuple({folded(phrase): phrase for phrase in phrases}.values())),
]
