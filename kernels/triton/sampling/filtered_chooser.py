"""Drawing for rows with filters: trials where top-p has no top-k beside it, and a search for all other rows, and for
those that no trial decides: nearly none where p is large, 3 % of rows with flat scores where it is 0.5.

A search reads a row some ten times, on one SM. Where top-k leaves few tokens, trials seldom decide all rows of a step,
and for min-p alone a search takes two readings.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from thothy_ai.kernels.sampling import SamplingBatch
from thothy_ai.kernels.triton.sampling.filtered_kernel import filtered_kernel
from thothy_ai.kernels.triton.sampling.launches import PARTS, PROGRAMS, Tile, division, row_arguments
from thothy_ai.kernels.triton.sampling.trial_kernels import CHUNK, check_kernel, draw_kernel

_TRIALS = 3  # with a top-p of 0.9, one row in a few thousand is left then
_FEWER_PROGRAMS = 1056  # eight per SM, where most rows have nothing to do, or a program first loads what it needs


class FilteredChooser:
    """Draws for the rows with filters of steps of at most `max_rows` members on one GPU. Owns its scratch memory."""

    def __init__(self, max_rows: int, device: torch.device, drawing: Tile, searching: Tile) -> None:
        self._drawing, self._searching = drawing, searching
        self._states = torch.zeros(max_rows, dtype=torch.int32, device=device)
        self._tops = torch.empty(max_rows, dtype=torch.float32, device=device)
        self._values = torch.empty(max_rows, PARTS, dtype=torch.float32, device=device)
        self._tokens = torch.empty(max_rows, PARTS, dtype=torch.int32, device=device)
        self._highest = torch.empty(max_rows, PARTS, dtype=torch.float32, device=device)
        self._arrived = torch.zeros(max_rows, dtype=torch.int32, device=device)
        self._sums = torch.empty(max_rows, 2, 0, dtype=torch.float32, device=device)  # until the vocabulary is known

    def by_trial(self, chosen: Tensor, step: SamplingBatch, seen: Tensor | None) -> None:
        """Write tokens of the nucleus rows into `chosen` [R] int64, and note which rows are decided; `seen` as in the
        step's other launches.
        """
        tile, members, row = self._drawing, len(chosen), row_arguments(step, seen)
        tiles = tile.count(step.logits.shape[1])
        chunks = -(-tiles // CHUNK)
        if self._sums.shape[2] != chunks:  # it stays in place, so that graphs of all sizes share it
            self._sums = self._sums.new_empty(len(self._arrived), 2, chunks)
        check_parts, chunks_each = division(chunks, members, _FEWER_PROGRAMS)
        for trial in range(_TRIALS):
            parts, tiles_each = division(tiles, members, _FEWER_PROGRAMS if trial else PROGRAMS)
            draw_kernel[(members, parts)](
                chosen, self._states, self._tops, self._values, self._tokens, self._highest, self._arrived,
                step.positions, *row, tiles_each,
                AGAIN=trial > 0, PARTS=PARTS, LINES=tile.lines, LINE=tile.line, num_warps=tile.warps,
            )  # fmt: skip
            check_kernel[(members, check_parts)](
                chosen, self._states, self._tops, self._sums, self._arrived, *row, chunks_each, chunks,
                CHUNKS=triton.next_power_of_2(chunks), LINES=tile.lines, LINE=tile.line, num_warps=tile.warps,
            )  # fmt: skip

    def by_search(self, chosen: Tensor, step: SamplingBatch, seen: Tensor | None) -> None:
        """Write tokens of the other filtered rows, and of nucleus rows that no trial decided."""
        tile = self._searching
        filtered_kernel[(len(chosen),)](
            chosen,
            self._states,
            step.positions,
            *row_arguments(step, seen),
            LINES=tile.lines,
            LINE=tile.line,
            num_warps=tile.warps,
        )
