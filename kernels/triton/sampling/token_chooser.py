"""Choosing tokens from logits in Triton: one launch for greedy and unfiltered rows, one for rows with filters, and six
before it for nuclei.

Logits are read as they are and computed with in float32; penalties need no copy of them, only a bit for each token that
a row has. The draws are those of the reference, up to the rounding of float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.sampling import COLUMNS, Column, SamplingBatch, Work
from thothy_ai.kernels.triton.sampling.argmax_kernel import argmax_kernel
from thothy_ai.kernels.triton.sampling.filtered_chooser import FilteredChooser
from thothy_ai.kernels.triton.sampling.launches import (
    CHOOSING,
    FILTERING,
    PARTS,
    Tile,
    division,
    row_arguments,
    words_of,
)

_COLUMNS, _PENALTY = tl.constexpr(COLUMNS), tl.constexpr(int(Column.PENALTY))
_MARKED = 1024  # token ids that a program marks


class TokenChooser:
    """`choose` for steps of at most `max_rows` members on one GPU, and the scratch memory it needs."""

    def __init__(
        self, max_rows: int, device: torch.device, choosing: Tile = CHOOSING, filtering: Tile = FILTERING
    ) -> None:
        self._choosing = choosing
        self._filtered = FilteredChooser(max_rows, device, choosing, filtering)
        self._values = torch.empty(max_rows, PARTS, dtype=torch.float32, device=device)
        self._tokens = torch.empty(max_rows, PARTS, dtype=torch.int32, device=device)
        self._arrived = torch.zeros(max_rows, dtype=torch.int32, device=device)
        self._seen = torch.empty(0, 0, dtype=torch.int32, device=device)  # until a row is penalized

    def __call__(self, step: SamplingBatch, work: Work) -> Tensor:
        """One token for each member [R] int64: of the same scores the first. It depends on the member alone.

        NO_TOKEN where a score that is allowed is NaN or infinite, or none is allowed.
        """
        chosen = torch.empty_like(step.rows)
        seen = None
        if work.penalized:
            members, vocab_size = step.logits.shape
            if self._seen.shape[1] != words_of(vocab_size):  # it stays in place, so that graphs of all sizes share it
                self._seen = self._seen.new_empty(len(self._arrived), words_of(vocab_size))
            seen = seen_tokens(step, self._seen[:members])
        if work.others:
            tile = self._choosing
            parts, tiles_each = division(tile.count(step.logits.shape[1]), len(chosen))
            argmax_kernel[(len(chosen), parts)](
                chosen, self._values, self._tokens, self._arrived, step.positions, *row_arguments(step, seen),
                tiles_each, NOISE=work.unfiltered, PARTS=PARTS, LINES=tile.lines, LINE=tile.line, num_warps=tile.warps,
            )  # fmt: skip
        if work.nucleus:
            self._filtered.by_trial(chosen, step, seen)
        if work.filtered:
            self._filtered.by_search(chosen, step, seen)
        return chosen


def seen_tokens(step: SamplingBatch, seen: Tensor) -> Tensor:
    """Fill `seen` [R, ceil(V / 32)] int32 with a bit for each token that a penalized row has, lowest first; with zeros
    for other rows.
    """
    seen.zero_()
    longest = step.token_ids.shape[1]
    _mark_kernel[(len(seen), triton.cdiv(longest, _MARKED))](
        seen, step.token_ids, step.rows, step.positions, step.table, seen.shape[1], longest, TOKENS=_MARKED
    )
    return seen


@triton.jit(do_not_specialize_on_alignment=["rows", "positions"])
def _mark_kernel(seen, token_ids, rows, positions, table, words, longest, TOKENS: tl.constexpr):
    member = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + member)
    known = tl.load(positions + member)
    begin = tl.program_id(1) * TOKENS
    if (begin < known) & (tl.load(table + row * _COLUMNS + _PENALTY) != 1.0):
        index = begin + tl.arange(0, TOKENS)
        token = tl.load(token_ids + row * longest + index, mask=index < known, other=0)
        tl.atomic_or(seen + member * words + token // 32, 1 << (token & 31), mask=index < known, sem="relaxed")
