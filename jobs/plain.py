"""What a small model is asked (`Context.plain`): short tasks, one per call, under patterns that make it stop.

Such a model invents figures, rarely ends a sentence, and invents quotations. Its patterns therefore have no
digits, end with the sentence, and offer only what can be quoted. The artifact has the same shape as any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from thothy_ai.jobs.budget import max_tokens
from thothy_ai.jobs.locales import script_of
from thothy_ai.jobs.parts import Part, Piece, Writing, key_of
from thothy_ai.jobs.plan import Call, Sampling
from thothy_ai.jobs.prompts import about_source, in_language
from thothy_ai.jobs.requests import WritingRequest
from thothy_ai.jobs.schema import object_schema

# By script: capitals, and letters. No digits, no quotation marks.
_LATIN: Final = ("A-ZÀ-ÖØ-Þ", "A-Za-zÀ-ÖØ-öø-žȘ-ț")
_OTHER: Final = ("\u0370-\u1fff\u3040-\ud7ff", "A-Za-z\u0300-\u1fff\u3040-\ud7ff")
TEMPERATURE = 0.4
PENALTY = 1.02
PENALTY_AGAIN = 1.04  # it counts the tokens of the prompt, thus keeps from copying again
WARMER = 0.2  # added where something is written again: it would be written alike


def sentence(locale: str, min_chars: int, max_chars: int) -> dict[str, Any]:
    """Schema of one sentence without figures and quotations, and without gaps where they would be."""
    capital, letter = _characters(locale)
    body = f"(?: ?[{letter}'’,、-]){{{min_chars},{max_chars}}}"
    return {"type": "string", "pattern": f"^[{capital}]{body}[{letter}]{{2}}[.!?。！？।]$"}


def headline(locale: str, min_words: int, max_words: int) -> dict[str, Any]:
    """Schema of so many words, none of them cut off."""
    capital, letter = _characters(locale)
    words = f"(?: [{letter}'’-]{{0,15}}[{letter}]){{{min_words - 1},{max_words - 1}}}"
    return {"type": "string", "pattern": f"^[{capital}][{letter}'’-]{{0,15}}{words}$"}


def _characters(locale: str) -> tuple[str, str]:
    return _LATIN if script_of(locale) == "Latn" else _OTHER


def piece(
    writing: Writing[WritingRequest],
    task: str,
    parts: Mapping[Part, Mapping[str, Any]],
    *,
    again: bool = False,
    ahead: bool = False,
) -> Piece:
    """A call for these parts, given by their schemas. The task is one sentence."""
    request, source, context = writing
    schema = of_parts(parts)
    other = "" if request.locale.partition("-")[0] == "en" else in_language(request.locale)
    sampling = Sampling(
        max_tokens=max_tokens(schema, request.locale, context),
        temperature=TEMPERATURE + WARMER * again,
        top_p=0.9,
        repetition_penalty=PENALTY_AGAIN if again else PENALTY,
    )
    call = Call(about_source(source, task + other, context), schema, sampling, locale=request.locale)
    return Piece(call, tuple(parts), ahead)


def of_parts(parts: Mapping[Part, Mapping[str, Any]]) -> dict[str, Any]:
    """The schema of an object with one key per part."""
    return object_schema({key_of(part): schema for part, schema in parts.items()})
