"""Rows whose scores change before a token is chosen: by biases, frequency and presence penalties, minimum tokens.

Owns the biases of all rows on the device. The host knows which rows have changes, so that steps without any cost
nothing. The device counts a row's output tokens from its token ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from thothy_ai.engine.api.sampling import MAX_ENTRIES
from thothy_ai.engine.api.step import FOREVER, Int32, RowBiases, StartedRows
from thothy_ai.engine.execution.transfers import deliver, send
from thothy_ai.kernels.operations import operations_for
from thothy_ai.kernels.sampling import Biases, SamplingBatch

AT_ONCE = 64  # rows; each needs a float32 copy of its logits, and as much again for token counts
BYTES = 8  # per score; plain torch needs the following temporaries in addition
PLAIN_BYTES = 40
_ENTRY_BYTES = 12


class ScoreChanges:
    """The biases of `max_rows` rows on `device`."""

    def __init__(self, max_rows: int, device: torch.device) -> None:
        self._device = device
        self._change = operations_for(device).changed_scores
        tokens, untils = torch.zeros(2, max_rows, MAX_ENTRIES, dtype=torch.int32, device=device)
        self._biases = Biases(tokens, torch.zeros(max_rows, MAX_ENTRIES, device=device), untils)
        self._untils: dict[int, int] = {}  # rows with changes, and the position until which they apply

    def __bool__(self) -> bool:
        return bool(self._untils)

    def start_rows(self, started: StartedRows, biases: RowBiases) -> None:
        """Drop the changes of the rows' last sequences, and send the biases of the new ones."""
        penalized = (started.frequency_penalties != 0) | (started.presence_penalties != 0)
        for row in started.rows.tolist():
            self._untils.pop(row, None)
        entries: dict[int, list[tuple[int, int, float]]] = {row: [] for row in started.rows[penalized].tolist()}
        self._untils.update(dict.fromkeys(entries, FOREVER))
        for row, token, until, value in zip(*(column.tolist() for column in biases), strict=True):
            entries.setdefault(row, []).append((token, until, value))
            self._untils[row] = max(until, self._untils.get(row, 0))
        if not entries:
            return
        # All entries of these rows are replaced, since their last sequences may have had some; unused entries apply to
        # no position.
        whole = np.zeros((3, len(entries), MAX_ENTRIES), np.float64)
        for index, listed in enumerate(entries.values()):
            whole[:, index, : len(listed)] = np.array(listed).T
        tokens, untils, values = deliver(torch.from_numpy(whole), self._device)
        rows = send(list(entries), self._device).to(torch.int64)
        for target, sent in zip(self._biases, (tokens, values, untils), strict=True):
            target[rows] = sent.to(target.dtype)

    def asking(self, members: Sequence[int], ends: Int32 | None) -> list[int]:
        """Places of the members whose scores change, given their rows and the positions of the next tokens."""
        if not self._untils:
            return []
        positions = [0] * len(members) if ends is None else ends.tolist()
        untils = (self._untils.get(row, 0) for row in members)
        return [place for place, (end, until) in enumerate(zip(positions, untils, strict=True)) if end < until]

    def batches(self, step: SamplingBatch, asking: Sequence[int]) -> Iterator[tuple[Tensor, SamplingBatch]]:
        """Yield the step's members at places `asking` in parts, each with its places and its changed scores."""
        for begin in range(0, len(asking), AT_ONCE):
            places = send(asking[begin : begin + AT_ONCE], self._device).to(torch.int64)
            yield (
                places,
                step._replace(
                    logits=self._change(step, places, self._biases),
                    rows=step.rows[places],
                    positions=step.positions[places],
                    bitmask=None if step.bitmask is None else step.bitmask[places],
                ),
            )

    @staticmethod
    def workspace_bytes(max_rows: int, vocab_size: int, device_type: str) -> int:
        """Device bytes of the biases, and of the changed scores of `AT_ONCE` rows."""
        per_score = BYTES if device_type == "cuda" else PLAIN_BYTES
        return max_rows * MAX_ENTRIES * _ENTRY_BYTES + min(max_rows, AT_ONCE) * vocab_size * per_score
