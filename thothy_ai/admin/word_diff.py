"""What a person has changed in a text, word by word: for the command line and the console."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, Literal, NamedTuple

What = Literal["same", "gone", "came"]
MAX_WORDS: Final = 2_000  # that are compared one by one, of both texts, with the spaces between them
_WORD = re.compile(r"\s+|[^\s]+")


class DiffPart(NamedTuple):
    """A stretch of text that stayed, went or came."""

    what: What
    text: str


def word_diff(before: str, after: str) -> Iterator[DiffPart]:
    """The two texts as one, in order. Long ones are compared line by line where they differ: the time that words take
    grows with their square.
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
    """The number of words with which both begin."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((place for place, (was, now) in pairs if was != now), min(len(old), len(new)))


def _part(what: What, words: Sequence[str]) -> Iterator[DiffPart]:
    if text := "".join(words):
        yield DiffPart(what, text)
