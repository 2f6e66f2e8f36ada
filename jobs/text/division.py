"""Division of a text by meaning: at headings first, then between blocks, list items, lines, sentences and words.

Nothing is lost or added: joining the parts gives the text. A code block, table, list item or link is cut only if it
alone exceeds the limit.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import pairwise
from typing import TypeVar

from thothy_ai.jobs.text.blocks import blocks, line_starts, lines_of

# Ranks of cuts; 1 to 6 are before headings. A line break in a paragraph ranks below a sentence: it may be a wrap.
_BLOCK, _NESTED, _ROW, _SENTENCE, _LINE, _WORD, _CHARACTER = range(7, 14)
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’»“)\]*_]*\s+(?![a-zß-öø-ÿ])|(?<=[。！？])[」』”’）》]*\s*")
_WORD_END = re.compile(r"(?<=\s)(?=\S)|(?<=[、，；：,])")
_LINK_OR_CODE = re.compile(r"!?\[[^\]\n]*\]\([^)\n]*\)|`+[^`\n]*`+|<[^>\n]{1,300}>|\bhttps?://\S+")
_MAX_PIECE = 40  # characters per piece of a word that must be cut

Cuts = dict[int, list[int]]
T = TypeVar("T")


def estimated_tokens(text: str) -> float:
    """The estimated number of tokens of a text, by its scripts. A vocabulary of 128k needs fewer, one of 49k sometimes
    more.
    """
    return sum(count * _tokens_of(char) for char, count in Counter(text).items())


@lru_cache(maxsize=8192)
def _tokens_of(char: str) -> float:
    code = ord(char)
    if code < 0x80:
        return 1 / 3.4 if char.isalpha() or char == " " else 0.6
    # Latin with diacritics; Greek, Cyrillic, Hebrew, Arabic; Indic scripts, Thai; Korean Jamo, punctuation; CJK
    limits = ((0x250, 0.7), (0x900, 0.55), (0x1100, 0.9), (0x2E80, 0.7), (0x10000, 1.0))
    return next((tokens for limit, tokens in limits if code < limit), 2.0)


def grouped(items: Iterable[T], tokens: Callable[[T], float], room: float, most: int) -> list[list[T]]:
    """Groups of consecutive items, each of at most `most` items and `room` tokens; a larger item is a group
    of its own.
    """
    groups: list[list[T]] = []
    taken = 0.0
    for item in items:
        own = tokens(item)
        if not groups or len(groups[-1]) == most or taken + own > room:
            groups.append([])
            taken = 0.0
        groups[-1].append(item)
        taken += own
    return groups


def divide(text: str, max_tokens: float) -> tuple[str, ...]:
    """The parts of a text, each of at most `max_tokens` by estimate, and as few as its cut points allow."""
    if estimated_tokens(text) <= max_tokens:
        return (text,) if text else ()
    starts = line_starts(lines_of(text))
    ranks: dict[int, int] = dict.fromkeys(starts, _LINE)
    for block in blocks(text):
        rank = _NESTED if block.depth else block.level or _BLOCK
        offset = starts[block.first]
        ranks[offset] = min(rank, ranks[offset])
        if block.kind in {"code", "table"}:
            ranks |= {starts[line]: _ROW for line in range(block.first + 1, block.last)}
    cuts: Cuts = {rank: [] for rank in (*range(1, _SENTENCE), _LINE)}
    for offset in sorted(ranks):
        cuts[ranks[offset]].append(offset)
    bounds = [0, *_ends(text, 0, len(text), 1, cuts, max(max_tokens, 1.0))]
    return tuple(text[start:end] for start, end in pairwise(bounds))


def sentence_starts(text: str) -> list[int]:
    """The character positions where sentences after the first begin; approximate, since some abbreviations count as
    ends.
    """
    return _starts(_SENTENCE_END, text)


def _starts(end: re.Pattern[str], text: str) -> list[int]:
    """The positions after each match of `end`, outside links and code."""
    protected = [match.span() for match in _LINK_OR_CODE.finditer(text)]
    starts = []
    for start in (match.end() for match in end.finditer(text)):
        before = bisect_right(protected, (start, start))
        first, last = protected[before - 1] if before else (0, 0)
        if 0 < start < len(text) and not first < start < last:
            starts.append(start)
    return starts


def _ends(text: str, start: int, end: int, rank: int, cuts: Cuts, limit: float) -> Iterator[int]:
    """The ends of the parts of text[start:end], cut at places of this rank, and inside a piece at the next rank.

    Neighbouring pieces are packed into one part while they fit; the parts of a piece that was cut stay apart.
    """
    weight, pending = 0.0, start
    if rank in cuts:
        places = cuts[rank][bisect_right(cuts[rank], start) : bisect_left(cuts[rank], end)]
    else:
        places = [start + place for place in _FINDERS[rank](text[start:end])]
    for piece_start, piece_end in pairwise([start, *places, end]):
        tokens = estimated_tokens(text[piece_start:piece_end])
        if weight and weight + tokens > limit:
            yield piece_start
            weight, pending = 0.0, piece_start
        if tokens > limit and rank < _CHARACTER:
            yield from _ends(text, piece_start, piece_end, rank + 1, cuts, limit)
            pending = piece_end
        else:
            weight += tokens
    if pending < end:
        yield end


_FINDERS: dict[int, Callable[[str], list[int]]] = {
    _SENTENCE: sentence_starts,
    _WORD: partial(_starts, _WORD_END),
    _CHARACTER: lambda text: list(range(_MAX_PIECE, len(text), _MAX_PIECE)),
}
