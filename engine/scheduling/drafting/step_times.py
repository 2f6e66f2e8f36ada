"""Predicts steps' seconds by their number of tokens: measured for captured sizes, and corrected by observed steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from thothy_ai.engine.api.step import Float64, Int64

_WEIGHT = 0.1  # of the newest value in a mean


class Mean:
    """An exponentially weighted mean; None before the first value."""

    def __init__(self) -> None:
        self.value: float | None = None

    def add(self, value: float) -> None:
        self.value = value if self.value is None else self.value + _WEIGHT * (value - self.value)


class Line:
    """A line through exponentially weighted points, with a slope of at least 0; None before the first point."""

    def __init__(self) -> None:
        self._x, self._y, self._xx, self._xy = Mean(), Mean(), Mean(), Mean()

    def add(self, x: float, y: float) -> None:
        for mean, value in ((self._x, x), (self._y, y), (self._xx, x * x), (self._xy, x * y)):
            mean.add(value)

    def at(self, x: Int64) -> Float64 | None:
        mean, height, squares, products = (each.value for each in (self._x, self._y, self._xx, self._xy))
        if mean is None or height is None or squares is None or products is None:
            return None
        spread = squares - mean * mean
        slope = (products - mean * height) / spread if spread > 1e-6 * squares else 0.0
        values: Float64 = np.maximum(0.0, height + max(0.0, slope) * (x - mean))
        return values


class StepTimes:
    """`measured`: seconds of a step without any KV, by the size that it is padded to, up to the engine's rows. It is
    empty on a device without graphs; there, time is assumed to grow linearly from decode steps to steps with prompts.
    """

    def __init__(self, measured: Mapping[int, float]) -> None:
        self._sizes = np.array(sorted(measured), np.int64)
        self._measured = np.array([measured[size] for size in self._sizes.tolist()])
        self._beyond = Mean()  # seconds of decode steps beyond the measured ones
        self._decode, self._prefill = (Mean(), Mean()), (Mean(), Mean())  # mean tokens and seconds of such steps

    def observe(self, tokens: int, seconds: float, *, decodes: bool) -> None:
        """Learn from a step; `decodes`: no part of a prompt was in it."""
        for mean, value in zip(self._decode if decodes else self._prefill, (tokens, seconds), strict=True):
            mean.add(value)
        if decodes and len(self._sizes) and tokens <= self._sizes[-1]:
            self._beyond.add(seconds - float(self._measured[np.searchsorted(self._sizes, tokens)]))

    def of(self, tokens: Int64) -> Float64 | None:
        """Seconds of decode steps with these numbers of tokens, up to the largest size; None until they are known."""
        if len(self._sizes):
            measured: Float64 = self._measured[np.searchsorted(self._sizes, tokens)]
            return None if self._beyond.value is None else measured + max(0.0, self._beyond.value)
        (few, sooner), (many, later) = ((each.value for each in means) for means in (self._decode, self._prefill))
        if few is None or sooner is None or many is None or later is None or many <= few:
            return None
        seconds: Float64 = sooner + (tokens.astype(np.float64) - few) * max(0.0, (later - sooner) / (many - few))
        return seconds
