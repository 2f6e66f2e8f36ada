"""Finds earlier occurrences of texts' last tokens, and what follows them, for all rows of a step at once.

The result is what a suffix automaton would find: the places after the longest suffix that occurs. A plain search is
used instead, since comparing 2,000 tokens with one takes 2 us, and nothing must be built when a sequence begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from thothy_ai.engine.api.step import Float64, Int32, Int64

LONGEST = 32  # compared tokens of a suffix, at most
AHEAD = 16  # tokens looked up after a suffix
NONE = -1  # separates texts, and the parts of a text
_WIDTH = 1024  # columns of a new matrix


class Followed(NamedTuple):
    """What follows the last occurrence of the longest suffix of each of Q texts: `tokens` [Q, AHEAD], NONE after the
    text's end and without a match. `lengths` [Q] are the suffixes' lengths. `shares` [Q, AHEAD]: of all occurrences of
    the suffix and the tokens before this one, the share that continues with this token.
    """

    tokens: Int32
    lengths: Int64
    shares: Float64


class Texts:
    """Growing texts, each in a row of a matrix. Before a text exceeds `most` tokens, its older half is dropped."""

    def __init__(self, count: int, most: int) -> None:
        self._most, self._lengths = most, [0] * count
        self._matrix = self._empty(min(most, _WIDTH))

    def __getitem__(self, text: int) -> Int32:
        """The tokens [n] of a text; the view is valid until tokens are added."""
        row: Int32 = self._matrix[text, LONGEST : LONGEST + self._lengths[text]]
        return row

    def add(self, text: int, tokens: Sequence[int]) -> None:
        """Append tokens to a text."""
        tokens, length = tokens[-self._most :], self._lengths[text]
        if length + len(tokens) > self._most:
            kept = self[text][length - min(length, self._most // 2, self._most - len(tokens)) :].copy()
            self.clear(text)
            length = self._lengths[text] = len(kept)
            self[text][:] = kept
        self._lengths[text] = length + len(tokens)
        if (width := self._matrix.shape[1] - LONGEST - AHEAD) < self._lengths[text]:
            narrow, self._matrix = self._matrix, self._empty(min(self._most, max(2 * width, self._lengths[text])))
            self._matrix[:, : LONGEST + width] = narrow[:, :-AHEAD]
        self[text][length:] = tokens

    def clear(self, text: int) -> None:
        self[text][:] = NONE
        self._lengths[text] = 0

    def after(self, ends: Sequence[int], texts: Sequence[int]) -> Followed:
        """Find in each of `texts` [Q] the longest suffix of the text `ends` [Q] that occurs, and what follows it."""
        flat, width = self._matrix.reshape(-1), self._matrix.shape[1]
        stops = np.array([end * width + LONGEST + self._lengths[end] for end in ends])
        last = flat[stops[:, None] - np.arange(1, LONGEST + 1)]  # the last token first
        last[last == NONE] = NONE - 1  # so that it equals no token
        found = [
            (self[text][:-1] == token).nonzero()[0] + (text * width + LONGEST + 1)
            for text, token in zip(texts, last[:, 0], strict=True)
        ]
        query, places = np.repeat(np.arange(len(texts)), [*map(len, found)]), np.concatenate(found)
        lengths, query, places = self._longest(last, query, places)
        tokens, shares = np.full((len(texts), AHEAD), NONE, np.int32), np.zeros((len(texts), AHEAD))
        if len(places):
            firsts = np.flatnonzero(np.diff(query, prepend=-1))
            counts = np.diff(firsts, append=len(query))
            followed = flat[places[:, None] + np.arange(AHEAD)]
            latest = followed[firsts + counts - 1]
            agreed = np.logical_and.accumulate(followed == latest.repeat(counts, axis=0), axis=1)
            agreeing = np.add.reduceat(agreed, firsts, axis=0, dtype=np.int64)
            tokens[query[firsts]] = latest
            shares[query[firsts]] = agreeing / np.column_stack((counts, agreeing[:, :-1]))
        return Followed(tokens, lengths, shares)

    def _longest(self, last: Int32, query: Int64, places: Int64) -> tuple[Int64, Int64, Int64]:
        """Lengths [Q] of the longest suffixes. Also returns, of the places after the last token, those after them."""
        flat = self._matrix.reshape(-1)
        two = flat[places - 2] == last[query, 1]
        run = np.ones(len(places), np.int64)
        before = places[two][:, None] - np.arange(3, LONGEST + 1)
        run[two] = 2 + np.logical_and.accumulate(flat[before] == last[query[two], 2:], axis=1).sum(axis=1)
        lengths = np.zeros(len(last), np.int64)
        np.maximum.at(lengths, query, run)
        kept = run == lengths[query]
        return lengths, query[kept], places[kept]

    def _empty(self, width: int) -> Int32:
        return np.full((len(self._lengths), LONGEST + width + AHEAD), NONE, np.int32)
