"""How long steps take by their number of tokens: measured for the captured sizes, and corrected by what steps took."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

_WEIGHT = 0.1  # of the last step in a mean


class Mean:
    """A mean that forgets; None before the first value."""

    def __init__(self) -> None:
        self.value: float | None = None

    def add(self, value: float) -> None:
        self.value = value if self.value is None else self.value + _WEIGHT * (value - self.value)


class StepTimes:
    """`measured`: seconds of a step by the size that it is padded to, before any KV is read; none on a device without
    graphs, where time is taken to grow evenly between decode steps and those that have prompts, too.
    """

    def __init__(self, measured: Mapping[int, float]) -> None:
        self._sizes = sorted(measured)
        self._measured = measured
        self._beyond = Mean()  # seconds that decode steps take besides
        self._decode, self._prefill = (Mean(), Mean()), (Mean(), Mean())  # tokens and seconds of such steps

    def observe(self, tokens: int, seconds: float, *, decodes: bool) -> None:
        """Learn from a step; `decodes`: it computed no part of a prompt."""
        for mean, value in zip(self._decode if decodes else self._prefill, (tokens, seconds), strict=True):
            mean.add(value)
        if decodes and (measured := self._of_size(tokens)) is not None:
            self._beyond.add(seconds - measured)

    def of(self, tokens: int) -> float | None:
        """The seconds of a decode step with so many tokens, as far as they are known."""
        if (measured := self._of_size(tokens)) is not None:
            return None if self._beyond.value is None else max(measured, measured + self._beyond.value)
        (few, sooner), (many, later) = ((each.value for each in means) for means in (self._decode, self._prefill))
        if few is None or sooner is None or many is None or later is None or many <= few:
            return None
        return sooner + (tokens - few) * max(0.0, (later - sooner) / (many - few))

    def _of_size(self, tokens: int) -> float | None:
        place = bisect_left(self._sizes, tokens)
        return self._measured[self._sizes[place]] if place < len(self._sizes) else None
