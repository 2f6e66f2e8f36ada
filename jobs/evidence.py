"""Evidence: the spans of a source, the schema of a quotation, and the span that a model meant or that supports a text.

`quotation` is the schema of a span of a text: evidence is verbatim by construction, and most of its tokens are forced,
thus cheap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from rapidfuzz import fuzz

from thothy_ai.jobs import checks
from thothy_ai.jobs.checks.prompt_injection import instructs, without_instructions
from thothy_ai.jobs.checks.segments import sentences
from thothy_ai.jobs.text.blocks import blocks, lines_of
from thothy_ai.jobs.text.division import divide

PIECE_TOKENS = 80  # of a sentence that is too long
MIN_SPAN_CHARS, MAX_SPAN_CHARS = 12, 320
MIN_LETTERS = 8
MAX_HEADING_CHARS = 80  # of a line that does not end like a sentence, and is no evidence
MAX_SPANS_CHARS = 100_000  # in a schema; the engine takes 256 KiB
NEAR_ENOUGH = 88.0  # of 100: differs in a word or two, or in its punctuation
ENOUGH_WORDS = 2  # that a text shares with the sentence that supports it
_EDGES = " \t\n\"'“”„«»‘’‚‹›「」『』…,;:"
_MARKS = re.compile(r"^(?:[-*+>|] ?|\d{1,9}[.)] )+|[ |]+$")  # of list items, quotations and table rows
_LINK = re.compile(r"\]\([^)]*\)|https?://\S+")
_ENDS = (".", "!", "?", "…", "。", "！", "？", "۔", "।", '"', "”", "»", "“", "」", ")")
_PLAIN_SPAN = r'^[^\x00-\x1f"\\\x7f-\x9f\u2028\u2029]{12,320}$'


@lru_cache(maxsize=32)
def spans(text: str, locale: str) -> tuple[str, ...]:
    """The sentences and table rows of a text, each on one line, for use as evidence; very short ones are left out, and
    so are instructions to a language model, as long as there is anything else.
    """
    found = _spans(without_instructions(text), locale)
    return tuple(span for span in found if not instructs(span)) or found


def _spans(text: str, locale: str) -> tuple[str, ...]:
    lines = lines_of(text)
    found: dict[str, None] = {}
    for block in blocks(text):
        if block.kind in {"paragraph", "row"}:
            joined = _MARKS.sub("", " ".join("".join(lines[block.first : block.last]).split()))
            parts = sentences(joined, locale) if block.kind == "paragraph" else [joined]
            if block.depth or len(joined) > MAX_HEADING_CHARS or joined.endswith(_ENDS):
                found |= dict.fromkeys(span for part in parts for span in _short(part))
    return tuple(found)


def _short(part: str) -> Iterator[str]:
    """A sentence, or its pieces if it is long, as all of a paragraph in Thai is."""
    pieces = divide(part, PIECE_TOKENS) if len(part) > MAX_SPAN_CHARS else (part,)
    return (piece.strip() for piece in pieces if _says_something(piece.strip()))


def _says_something(piece: str) -> bool:
    letters = sum(map(str.isalpha, _LINK.sub("", piece)))
    return MIN_SPAN_CHARS <= len(piece) <= MAX_SPAN_CHARS and letters >= MIN_LETTERS


def quotation(text: str, locale: str) -> dict[str, Any]:
    """The schema of a span of the text. Of a text too long for that, it is any text, to be checked afterwards."""
    choices = spans(text, locale)
    if not choices or sum(map(len, choices)) > MAX_SPANS_CHARS:
        return {"type": "string", "pattern": _PLAIN_SPAN}
    return {"enum": list(choices)}


def restored(quote: str, source: str) -> str:
    """The quotation as the source has it, if it is there nearly so; otherwise unchanged."""
    bare = quote.strip(_EDGES)
    if not bare or checks.quoted("quote", bare, source) is None:
        return bare
    found = fuzz.partial_ratio_alignment(bare, source, processor=None, score_cutoff=NEAR_ENOUGH)
    if found is None or found.dest_end - found.dest_start < len(bare) // 2:
        return bare
    start, end = _whole_words(source, found.dest_start, found.dest_end)
    return " ".join(source[start:end].split()).strip(_EDGES)


def _whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    while 0 < start < len(text) and text[start - 1].isalnum() and text[start].isalnum():
        start -= 1
    while 0 < end < len(text) and text[end - 1].isalnum() and text[end].isalnum():
        end += 1
    return start, end


def evidence(text: str, source: str, locale: str) -> str:
    """The sentence of the source that has the most words in common with a text; empty if none has enough."""
    wanted = _longer_words(text, locale)
    choices = spans(source, locale)
    shared = [len(wanted & _longer_words(choice, locale)) for choice in choices]
    best = max(shared, default=0)
    return choices[shared.index(best)] if best >= ENOUGH_WORDS else ""


def _longer_words(text: str, locale: str) -> set[str]:
    """The words that carry meaning, by their beginnings."""
    return {word[:6] for word in checks.words(text, locale) if len(word) > 3 or not word.isascii()}
