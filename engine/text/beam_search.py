"""Which prefixes a beam search keeps, and when it ends: transformers' rules (5.17, `_beam_search`), on plain values.

Of all continuations of all beams, those among the best `width` that end a text compete for the `width` results, and the
best `width` that don't are the next beams.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from thothy_ai.engine.api import BeamSearch, EarlyStopping

Continuations = Sequence[tuple[int, float]]  # tokens and log-probabilities, the likeliest first


class Beam(NamedTuple):
    """Output tokens, and the sum of their log-probabilities."""

    tokens: tuple[int, ...] = ()
    logprob: float = 0.0


class Hypothesis(NamedTuple):
    """A complete text: `ended` by its last token, or as long as it may be."""

    score: float
    beam: Beam
    ended: bool


class Search:
    """Steps from the empty text. Texts have at most `longest` tokens, including the one that ends them.

    `ends` are the tokens that end a text once it has `shortest` tokens.
    """

    def __init__(self, wanted: BeamSearch, ends: frozenset[int], shortest: int, longest: int) -> None:
        self._wanted, self._ends, self._shortest, self._longest = wanted, ends, shortest, longest
        self._length = 0
        self._improvable = True
        self.beams: tuple[Beam, ...] = (Beam(),)
        self.results: list[Hypothesis] = []  # the best first

    @property
    def continuations(self) -> int:
        """How many of a beam's continuations `step` needs: enough for `width` beams that don't end a text."""
        return self._wanted.width + len(self._ends)

    @property
    def done(self) -> bool:
        full = len(self.results) == self._wanted.width
        at_once = full and self._wanted.early_stopping is EarlyStopping.FULL
        return at_once or not self._improvable or self._length >= self._longest

    def step(self, continuations: Iterable[Continuations]) -> None:
        """Continue each beam, given the likeliest tokens after it."""
        width, may_end = self._wanted.width, self._length >= self._shortest
        candidates = [
            Beam((*beam.tokens, token), beam.logprob + logprob)
            for beam, listed in zip(self.beams, continuations, strict=True)
            for token, logprob in listed
            if may_end or token not in self._ends
        ]
        candidates.sort(key=lambda beam: -beam.logprob)
        self._length += 1
        norm = float(self._length**self._wanted.length_penalty)
        complete = [
            Hypothesis(beam.logprob / norm, beam, beam.tokens[-1] in self._ends)
            for beam in candidates[:width]
            if self._is_complete(beam)
        ]
        self.results = sorted([*self.results, *complete], key=lambda each: -each.score)[:width]
        self.beams = tuple(beam for beam in candidates if not self._is_complete(beam))[:width]
        if self._improvable and self.beams and len(self.results) == width:
            # The best beam, were it complete, must be better than the worst result.
            penalty = self._wanted.length_penalty
            to_the_end = self._wanted.early_stopping is EarlyStopping.NEVER and penalty > 0
            length = self._longest if to_the_end else self._length
            self._improvable = self.beams[0].logprob / float(length**penalty) > self.results[-1].score

    def _is_complete(self, beam: Beam) -> bool:
        return beam.tokens[-1] in self._ends or self._length >= self._longest
