"""Evidence: the spans of a source, the schema of a quotation, and the span that a model meant or that a text rests on.

`quotation` is the schema of a span of a text: evidence is verbatim by construction, and most of its tokens are forced,
thus cheap.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from rapidfuzz import fuzz

from thothy_ai.jobs import checks
from thothy_ai.jobs.checks.prompt_injection import instructs, without_instructions
from thothy_ai.jobs.checks.segments import WordIndex, sentences
from thothy_ai.jobs.text.blocks import blocks, lines_of
from thothy_ai.jobs.text.division import divide

PIECE_TOKENS = 80  # per piece of a sentence that is too long
MIN_SPAN_CHARS, MAX_SPAN_CHARS = 12, 320
MIN_LETTERS = 8
MAX_HEADING_CHARS = 80  # a line this short that does not end like a sentence is a heading, not evidence
MAX_SPANS_CHARS = 100_000  # in a schema; the engine's limit is 256 KiB
NEAR_ENOUGH = 88.0  # of 100: a difference of a word or two, or of punctuation
ENOUGH_WORDS = 2  # shared by a text and the sentence that supports it
_EDGES = " \t\n\"'“”„«»‘’‚‹›「」『』…,;:"
_MARKS = re.compile(r"^(?:[-*+>|] ?|\d{1,9}[.)] )+|[ |]+$")  # of list items, quotations and table rows
_LINK = re.compile(r"\]\([^)]*\)|https?://\S+")
_ENDS = (".", "!", "?", "…", "。", "！", "？", "۔", "।", '"', "”", "»", "“", "」", ")")
_PLAIN_SPAN = r'^[^\x00-\x1f"\\\x7f-\x9f\u2028\u2029]{12,320}$'


@lru_cache(maxsize=32)
def spans(text: str, locale: str) -> tuple[str, ...]:
    """The sentences and table rows of a text, each on one line, for use as evidence. Very short ones and, if anything
    else is left, instructions to a language model are left out.
    """
    plain = without_instructions(text)
    lines = lines_of(plain)
    found: dict[str, None] = {}
    for block in blocks(plain):
        joined = _MARKS.sub("", " ".join("".join(lines[block.first : block.last]).split()))
        is_heading = not (block.depth or len(joined) > MAX_HEADING_CHARS or joined.endswith(_ENDS))
        if is_heading or block.kind not in {"paragraph", "row"}:
            continue
        for part in sentences(joined, locale) if block.kind == "paragraph" else [joined]:
            # A long sentence, such as a whole paragraph in Thai, is cut into pieces.
            for piece in map(str.strip, divide(part, PIECE_TOKENS) if len(part) > MAX_SPAN_CHARS else (part,)):
                letters = sum(map(str.isalpha, _LINK.sub("", piece)))
                if MIN_SPAN_CHARS <= len(piece) <= MAX_SPAN_CHARS and letters >= MIN_LETTERS:
                    found[piece] = None
    return tuple(span for span in found if not instructs(span)) or tuple(found)


def quotation(text: str, locale: str) -> dict[str, Any]:
    """The schema of a span of the text. If the text is too long for that, any text matches, and is checked
    afterwards.
    """
    choices = spans(text, locale)
    if not choices or sum(map(len, choices)) > MAX_SPANS_CHARS:
        return {"type": "string", "pattern": _PLAIN_SPAN}
    return {"enum": list(choices)}


def restored(quote: str, source: str) -> str:
    """The source's wording of a quotation that is nearly verbatim; otherwise the quotation unchanged."""
    bare = quote.strip(_EDGES)
    if not bare or checks.quoted("quote", bare, source) is None:
        return bare
    found = fuzz.partial_ratio_alignment(bare, source, processor=None, score_cutoff=NEAR_ENOUGH)
    if found is None or found.dest_end - found.dest_start < len(bare) // 2:
        return bare
    start, end = found.dest_start, found.dest_end  # and up to the borders of words
    while 0 < start < len(source) and source[start - 1].isalnum() and source[start].isalnum():
        start -= 1
    while 0 < end < len(source) and source[end - 1].isalnum() and source[end].isalnum():
        end += 1
    return " ".join(source[start:end].split()).strip(_EDGES)


def evidence(text: str, source: str, locale: str) -> str:
    """The sentence of the source that shares the most words with a text; empty if none shares enough."""
    wanted = _longer_words(text, locale)
    choices = spans(source, locale)
    shared = [len(wanted & _longer_words(choice, locale)) for choice in choices]
    best = max(shared, default=0)
    return choices[shared.index(best)] if best >= ENOUGH_WORDS else ""


def passages(text: str, source: str, locale: str, most: int) -> tuple[str, ...]:
    """The sentences of the source that share a text's rarest words and figures, the likeliest evidence first; none if
    nothing is shared, as between languages.
    """
    choices = spans(source, locale)
    weights = _index(source, locale).weights(_telling_words(text, locale))
    likeliest = sorted(weights, key=lambda place: (-weights[place], place))
    return tuple(choices[place] for place in likeliest[:most])


@lru_cache(maxsize=8)
def _index(source: str, locale: str) -> WordIndex:
    return WordIndex(_telling_words(span, locale) for span in spans(source, locale))


def _telling_words(text: str, locale: str) -> frozenset[str]:
    return frozenset(_longer_words(text, locale) | {word for word in checks.words(text, locale) if word[0].isdigit()})


def _longer_words(text: str, locale: str) -> set[str]:
    return {word[:6] for word in checks.words(text, locale) if len(word) > 3 or not word.isascii()}
