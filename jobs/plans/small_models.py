"""Calls of a small model (`Context.plain`): short tasks, one per call, under patterns that make it stop.

Such a model invents figures and quotations, and rarely ends a sentence. So the patterns allow only the source's
figures, end with the sentence, and offer only quotable text. Where the model cannot write a figure, it would repeat
punctuation marks: patterns allow those only between letters. The artifact has the same shape as any other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from thothy_ai.jobs import checks
from thothy_ai.jobs.api.plan import Call, Context, Sampling
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.evidence import spans
from thothy_ai.jobs.plans.budget import max_tokens
from thothy_ai.jobs.plans.parts import Part, PartCall, Writing, key_of
from thothy_ai.jobs.prompts import about_source, in_language
from thothy_ai.jobs.schema import object_schema
from thothy_ai.jobs.text.language import language
from thothy_ai.jobs.text.locales import script_of

# By script: capitals, and letters.
_LATIN: Final = ("A-ZÀ-ÖØ-Þ", "A-Za-zÀ-ÖØ-öø-žȘ-ț")
_OTHER: Final = ("\u0370-\u1fff\u3040-\ud7ff", "A-Za-z\u0300-\u1fff\u3040-\ud7ff")
_LAST_WORD: Final = re.compile(r"\b(?:[^\W\d_]{6,16}\b(?!['’-])|[^\W\d_]{3,5}(?=[.,;:!?]|\s*$))", re.MULTILINE)
_FIGURE: Final = re.compile(
    r"(?<![\w.,/-])[$€£]?\d{1,15}(?:[.,]\d{1,15}){0,5}(?:%|(?:-[a-z]{1,20}){1,3}(?!-))?(?![\w/]|[.,]\d)"
)
_DIGITS: Final = re.compile(r"(?<![\d.,])\d{1,15}(?:[.,]\d{1,15}){0,5}(?!\d|[.,]\d)")
_UNSPACED: Final = frozenset({"Hans", "Hant", "Jpan", "Thai"})
PASSAGE_SPANS = 2  # spans of a source per passage
_UNITS_PER_CHARACTER = 0.8  # of a sentence's pattern: a space and the two letters behind it are one
MAX_FIGURES = 60  # of a sentence's pattern
MIN_LAST_WORDS, MAX_LAST_WORDS = 8, 200  # of a headline's pattern
TEMPERATURE, TOP_P = 0.4, 0.9
PENALTY = 1.02
PENALTY_AGAIN = 1.08  # it counts the prompt's tokens, and so prevents copying again
WARMER = 0.2  # added for rewriting, which would otherwise give the same text


def sentence(locale: str, min_chars: int, max_chars: int, source: str = "") -> dict[str, Any]:
    """Schema of one sentence of about `min_chars` to `max_chars` characters, with no figures but the source's.

    It leaves no gap where another figure would be. In scripts with spaces, the last word has at least two letters.
    Within a word, only the alternative of one letter continues: masks are cheap then (`engine/grammar/slices.py`).
    """
    capital, letter = (f"[{characters}]" for characters in _characters(locale))
    numbers = "|".join(_numbers(source, locale))
    end = "[.!?。！？।]$"
    if not _is_spaced(locale):
        units = [letter, f" {letter}", f"、{letter}", f"['’-]{letter}{{2}}"]
        units += [f"(?:{numbers})、?{letter}"] if numbers else []
        last = f"(?:{numbers})?" if numbers else ""
        return _pattern(f"^{capital}(?:{'|'.join(units)}){{{min_chars},{max_chars}}}{last}{end}")
    word = f"(?: {letter}){{0,2}} {letter}['’-]?{letter}"
    units = [letter, *(f" {f'{letter} ' * short}{letter}{{2}}" for short in range(4)), f" {letter}['’-]{letter}{{2}}"]
    units += [f",{word}", f" {letter},{word}", f"['’-]{letter}{{2}}", f"['’]{letter},?{word}"]
    figure = f"(?:['’]{letter})?(?: {letter}){{0,2}} (?:{numbers})"
    units += [f"{figure},?{word}"] if numbers else []
    last = f"(?:['’]{letter}{f'|{figure}' if numbers else ''})?"
    least, most = (round(count * _UNITS_PER_CHARACTER) for count in (min_chars, max_chars))
    return _pattern(f"^{capital}(?:{'|'.join(units)}){{{least},{most}}}{last}{end}")


def _pattern(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": pattern}


@lru_cache(maxsize=64)  # each part of an artifact may have the figures of the same source
def _numbers(source: str, locale: str) -> tuple[str, ...]:
    """Patterns of a source's figures, as the source writes them; if it is in another language, only figures that all
    languages write alike.
    """
    found = (_FIGURE if _is_spaced(locale) else _DIGITS).findall(checks.without_instructions(source))
    alike = [figure for figure in found if figure.isdigit()]
    if len(alike) < len(found) and language(source) != locale.partition("-")[0]:
        found = alike
    return tuple(re.sub(r"[.$]", r"\\\g<0>", figure) for figure in dict.fromkeys(found))[:MAX_FIGURES]


def _is_spaced(locale: str) -> bool:
    return script_of(locale) not in _UNSPACED


def headline(locale: str, min_words: int, max_words: int, source: str = "") -> dict[str, Any]:
    """Schema of `min_words` to `max_words` words, or twice as many characters in a script without spaces.

    Figures stand before a word and are not counted. With a source in the same language, the last word is one of its
    words: a small model does not end by itself, and if it must, omits the space.
    """
    capital, letter = _characters(locale)
    if not _is_spaced(locale):
        return _pattern(f"^[{capital}][{letter}]{{{min_words},{max(3, 2 * max_words - 3)}}}$")
    end = f"(?:['’-][{letter}]{{1,12}})?"
    numbers = "|".join(_numbers(source, locale))
    number = f"(?:(?:{numbers}) )?" if numbers else ""  # optional, which keeps masks cheap, as in `sentence`
    words = f"(?: {number}[{letter}]{{1,16}}{end})"
    last: list[str] = []
    if script_of(locale) == "Latn" and language(source) == locale.partition("-")[0]:
        found = list(dict.fromkeys(_LAST_WORD.findall(checks.without_instructions(source))))[:MAX_LAST_WORDS]
        if len(found) >= MIN_LAST_WORDS:  # longer words, and words that end clauses, both with and without a capital
            last = [f"[{word[0].upper()}{word[0]}]{word[1:]}" if word[0].islower() else word for word in found]
    final = f" {number}(?:{'|'.join(last)})" if last else ""
    taken = 2 if last else 1  # by the first word, and the last
    several = f"{words}{{{min_words - taken},{max_words - taken}}}{final}"
    return _pattern(f"^[{capital}][{letter}]{{0,15}}{end}{several}$")


def _characters(locale: str) -> tuple[str, str]:
    return _LATIN if script_of(locale) == "Latn" else _OTHER


def passage(source: str, locale: str, number: int, count: int) -> tuple[str, ...]:
    """The first spans of one of `count` equal parts of a source. A small model writes better about these than about the
    whole.
    """
    found = spans(source, locale)
    first = number * len(found) // count
    return found[first : first + PASSAGE_SPANS] or (source,)


def piece(
    writing: Writing[WritingRequest],
    task: str,
    parts: Mapping[Part, Mapping[str, Any]],
    *,
    again: bool = False,
    stage: int = 0,
    shown: str = "",
) -> PartCall:
    """A call for these parts, given by their schemas, about the text `shown`, by default the source. The task is one
    sentence.
    """
    request, source, context = writing
    made = call(request, shown or source, task, of_parts(parts), context, again=again)
    return PartCall(made, tuple(parts), stage)


def call(
    request: WritingRequest[Any],
    shown: str,
    task: str,
    schema: Mapping[str, Any],
    context: Context,
    *,
    again: bool = False,
    step: str = "write",
) -> Call:
    """A call for an output of this schema, about the text `shown`. The task is one sentence."""
    sampling = Sampling(
        max_tokens=max_tokens(schema, request.locale, context),
        temperature=TEMPERATURE + WARMER * again,
        top_p=TOP_P,
        repetition_penalty=PENALTY_AGAIN if again else PENALTY,
    )
    english = request.locale.partition("-")[0] == "en" and language(request.source) in {"en", None}
    messages = about_source(shown, task + ("" if english else in_language(request.locale)), context)
    return Call(messages, schema, sampling, step, request.locale)


def of_parts(parts: Mapping[Part, Mapping[str, Any]]) -> dict[str, Any]:
    """The schema of an object with one key per part."""
    return object_schema({key_of(part): schema for part, schema in parts.items()})
