"""Spans of a text for use as evidence, and the schema of a quotation, which is one of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from thothy_ai.jobs.blocks import blocks, lines_of
from thothy_ai.jobs.checks.obedience import instructs, without_instructions
from thothy_ai.jobs.checks.segments import sentences
from thothy_ai.jobs.division import divide

PIECE_TOKENS = 80  # of a sentence that is too long
MIN_SPAN_CHARS, MAX_SPAN_CHARS = 12, 320
MIN_LETTERS = 8
MAX_HEADING_CHARS = 80  # of a line that does not end like a sentence, and is no evidence
MAX_SPANS_CHARS = 100_000  # in a schema; the engine takes 256 KiB
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
