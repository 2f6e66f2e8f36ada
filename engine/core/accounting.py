"""Divides each step's measured seconds over its members, so that the shares add up to the device's busy time.

A member's weight is its counted cost: the floating-point operations of its tokens in GEMMs and attention, and in the
output head if it samples; and the bytes of KV that it reads. Only the ratio of the device's two rates matters.
A shared prefix is charged to the member that computes it; the cost of reading it is divided among its readers.
A layer with a window costs only what lies within the window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thothy_ai.engine.api.step import Float64, Int32, Step


@dataclass(frozen=True, slots=True)
class StepCost:
    """Counted seconds, before measurement scales them. `windows`: the layers' windows, each with its share of all
    heads' numbers. `chunked`: windows are chunks.
    """

    token: float
    sample: float
    attended: float  # per (query, key) pair
    read: float  # per token of KV read
    state: float = 0.0  # per member, to read and write the states of recurrent layers
    windows: tuple[tuple[int | None, float], ...] = ((None, 1.0),)
    chunked: bool = False

    def weigh(self, step: Step) -> NDArray[np.float64]:
        """The cost of each member [N], always positive; a group's shared reads are divided over its members."""
        weights: Float64 = step.counts * self.token + step.samples * self.sample + self.state
        sizes = step.groups.sizes
        before = sizes.cumsum() - sizes
        grouped = np.repeat(step.groups.firsts - before, sizes) + np.arange(sizes.sum())  # members of all groups
        shared, saved = np.repeat(step.groups.shared, sizes), np.repeat(1 - 1 / sizes, sizes)
        for window, share in self.windows:
            if window is None:
                begins = step.starts - step.places  # tokens in dropped blocks
                pairs = step.counts * (step.ends - begins - (step.counts - 1) / 2)
            elif self.chunked:
                pairs = _pairs_in_chunks(step.ends, window) - _pairs_in_chunks(step.starts, window)
                begins = step.starts // window * window
            else:
                pairs = _pairs_until(step.ends, window) - _pairs_until(step.starts, window)
                begins = np.maximum(step.starts + 1 - window, 0)
            read = (step.ends - begins).astype(np.float64)
            read[grouped] -= np.maximum(shared - begins[grouped], 0) * saved
            weights += share * (pairs * self.attended + read * self.read)
        return weights


def _pairs_until(ends: Int32, window: int) -> Float64:
    """(query, key) pairs of the first `ends` queries: query i has i + 1 keys, at most `window`."""
    short = np.minimum(ends, window).astype(np.float64)
    return short * (short + 1) / 2 + (ends - short) * window


def _pairs_in_chunks(ends: Int32, chunk: int) -> Float64:
    """(query, key) pairs of the first `ends` queries, each with the keys of its chunk up to itself."""
    whole, rest = (part.astype(np.float64) for part in np.divmod(ends, chunk))
    return (whole * chunk * (chunk + 1) + rest * (rest + 1)) / 2


@dataclass(frozen=True, slots=True)
class Shares:
    """A step's seconds by member, in the step's order, and by phase."""

    members: list[float]
    prefill: float
    decode: float


def divide(seconds: float, weights: Float64, prefill: NDArray[np.bool_]) -> Shares:
    """Split `seconds` over a step's members by their `weights` [N]; `prefill` [N] says which are in prefill."""
    shares = weights * (seconds / weights.sum())
    in_prefill = float(shares[prefill].sum())
    return Shares(shares.tolist(), in_prefill, seconds - in_prefill)
