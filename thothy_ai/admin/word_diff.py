"""Shows a person's changes to a text word by word, for the command line and the console."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, Literal, NamedTuple

What = Literal["same", "gone", "came"]
MAX_WORDS: Final = 2_000  # words and spaces of both texts together, above which lines are compared instead
_WORD = re.compile(r"\s+|[^\s]+")


class DiffPart(NamedTuple):
    """A stretch of text that was kept, removed or added."""

    what: What
    text: str


def word_diff(before: str, after: str) -> Iterator[DiffPart]:
    """The parts of both texts, in order. Long differences are compared line by line, because the time of a comparison
    by words grows with the square of their number.
    """
    old, new = _WORD.findall(before), _WORD.findall(after)
    start = _alike(old, new)
    end = _alike(old[start:][::-1], new[start:][::-1])
    middle = old[start : len(old) - end], new[start : len(new) - end]
    many = sum(map(len, middle)) > MAX_WORDS
    if many:
        middle = "".join(middle[0]).splitlines(keepends=True), "".join(middle[1]).splitlines(keepends=True)
    yield from _part("same", old[:start])
    for what, first, last, new_first, new_last in SequenceMatcher(None, *middle, autojunk=many).get_opcodes():
        yield from _part("same" if what == "equal" else "gone", middle[0][first:last])
        yield from _part("came", [] if what == "equal" else middle[1][new_first:new_last])
    yield from _part("same", old[len(old) - end :])


def _alike(old: Sequence[str], new: Sequence[str]) -> int:
    """The number of words that both have in common at the beginning."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((place for place, (was, now) in pairs if was != now), min(len(old), len(new)))


def _part(what: What, words: Sequence[str]) -> Iterator[DiffPart]:
    if text := "".join(words):
        yield DiffPart(what, text)
