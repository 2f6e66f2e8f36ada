"""A step on the device: a few columns from the host, and the tokens that they describe."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class StepColumns(NamedTuple):
    """S sequences of a step, each [S] int32: row, first position, the first token's place in the block tables, and
    token count; `query_starts` [S + 1] int32. Place and position differ once blocks were dropped before the token.
    """

    rows: Tensor
    starts: Tensor
    places: Tensor
    counts: Tensor
    query_starts: Tensor


class StepTokens(NamedTuple):
    """The T tokens of a step: ids, positions, and per block table their KV slots (block * block_size + offset), each
    [T] int64.
    """

    ids: Tensor
    positions: Tensor
    slots: tuple[Tensor, ...]

    @classmethod
    def of(cls, columns: Tensor) -> StepTokens:
        """Views of columns [2 + tables, T]."""
        ids, positions, *slots = columns
        return cls(ids, positions, tuple(slots))
