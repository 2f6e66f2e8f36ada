"""Sizes of tiles, by which numbers are divided among programs and their threads."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

_ELEMENTS = 16  # numbers per thread: two accesses of 16 bytes, for two-byte numbers
_THREADS = 32
_MAX_WARPS = 16


class RowTile(NamedTuple):
    """A power of two that holds the row, and the warps that share it."""

    width: int
    warps: int


def power_of_two(number: int, least: int = 1) -> int:
    """The smallest power of two that is at least `number` and `least`."""
    return max(least, 1 << (number - 1).bit_length())


@cache
def row_tile(size: int) -> RowTile:
    """The tile of a row of `size` elements."""
    width = power_of_two(size)
    return RowTile(width, min(_MAX_WARPS, max(1, width // (_ELEMENTS * _THREADS))))
