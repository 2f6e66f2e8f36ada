"""Chooses each step's tokens. Owns the sampling parameters of all rows, on the device and on the host.

The host's copy decides which work a batch needs, so that an all-greedy batch costs one argmax and nobody waits for the
device. A draw depends on the row's seed and the token's position only: never on batch-mates or on the row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from thothy_ai.engine.api import SamplingParams
from thothy_ai.kernels import sampling

_COLDEST = 1e-5  # below it a softmax is an argmax in float32, and dividing by it may overflow
_LIKELIEST = (256, 4096)  # what top-k, top-p and min-p leave is mostly among so many; only if not, more are looked at
_ROWS_AT_ONCE = 32  # draws keep many temporaries of a whole vocabulary, so not all rows at once
_COPIED_BYTES = 16  # a logit: penalized, its mask spread out, masked, picked
_DRAWN_BYTES = 100  # a logit of a filtered draw; measured: 97, mostly Philox's 64-bit words
_GREEDY = SamplingParams()


class Sampler:
    """Parameters of `max_rows` rows over a vocabulary of `vocab_size`, for logits on `device`."""

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._params = [_GREEDY] * max_rows
        self._changed: dict[int, tuple[list[float], list[int]]] = {}
        # columns: temperature, top_p, min_p, repetition_penalty / seed, top_k
        self._floats = torch.ones(max_rows, 4, dtype=torch.float32, device=device)
        self._ints = torch.zeros(max_rows, 2, dtype=torch.int64, device=device)

    def set_row(self, row: int, params: SamplingParams, seed: int) -> None:
        """Give a row to a sequence; the device learns of it with the next `sample`."""
        top_k = min(params.top_k or self._vocab_size, self._vocab_size)
        floats = [params.temperature, params.top_p, params.min_p, params.repetition_penalty]
        self._params[row] = params
        self._changed[row] = (floats, [seed, top_k])

    def sample(
        self,
        logits: Tensor,
        rows: Tensor,
        positions: Tensor,
        token_ids: Tensor,
        known: Tensor,
        bitmask: Tensor | None,
        members: Sequence[int] | None = None,
    ) -> Tensor:
        """Choose one token for each member of a step; returns [R] int64.

        Args: logits [R, V] float32 (not changed), rows [R] int64, positions [R] int64 of the tokens to be drawn,
        token_ids [max_rows, L] int64, known [R] int64 how many of a row's are real, bitmask [R, ceil(V / 32)] int32
        with a bit set for each allowed token. `members` are the rows as the host knows them; without them they are
        read back from the device.
        """
        self._send()
        params = [self._params[row] for row in (rows.tolist() if members is None else members)]
        logits = self._penalized(logits, rows, token_ids, known, params)
        if bitmask is not None:
            logits = sampling.apply_bitmask(logits, bitmask)
        chosen = logits.argmax(dim=-1)
        for draw, wanted in ((self._draw, _is_unfiltered), (self._draw_filtered, _is_filtered)):
            if (members_wanted := self._where(params, wanted)) is not None:
                for picked in members_wanted.split(_ROWS_AT_ONCE):
                    chosen[picked] = draw(logits[picked], rows[picked], positions[picked])
        return chosen

    @staticmethod
    def workspace_bytes(max_rows: int, vocab_size: int) -> int:
        """Most device bytes that `sample` takes beside its logits: their changed copies, and the draws' temporaries."""
        return vocab_size * (max_rows * _COPIED_BYTES + min(max_rows, _ROWS_AT_ONCE) * _DRAWN_BYTES)

    def _send(self) -> None:
        """One transfer for the floats of changed rows, one for their integers."""
        if not self._changed:
            return
        index = torch.tensor(list(self._changed), dtype=torch.int64).to(self._device, non_blocking=True)
        floats, ints = zip(*self._changed.values(), strict=True)
        self._floats[index] = torch.tensor(floats, dtype=torch.float32).to(self._device, non_blocking=True)
        self._ints[index] = torch.tensor(ints, dtype=torch.int64).to(self._device, non_blocking=True)
        self._changed.clear()

    def _where(self, params: Sequence[SamplingParams], wanted: Callable[[SamplingParams], bool]) -> Tensor | None:
        """Indices of the members that want it [n] int64, or None."""
        indices = [index for index, of_member in enumerate(params) if wanted(of_member)]
        return torch.tensor(indices, dtype=torch.int64).to(self._device, non_blocking=True) if indices else None

    def _penalized(
        self, logits: Tensor, rows: Tensor, token_ids: Tensor, known: Tensor, params: Sequence[SamplingParams]
    ) -> Tensor:
        picked = self._where(params, _is_penalized)
        if picked is None:
            return logits
        row, count = rows[picked], known[picked]
        longest = token_ids.shape[1] if logits.is_cuda else int(count.max())  # asking a GPU would wait for it
        penalty = self._floats[row, 3]
        scores = sampling.penalize_repetition(logits[picked], token_ids[row, :longest], count, penalty)
        return logits.index_copy(0, picked, scores)

    def _draw(self, logits: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        return sampling.sample_unfiltered(logits, self._floats[rows, 0], self._ints[rows, 0], positions)

    def _draw_filtered(self, logits: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        """On a CPU look at the likeliest tokens first: sorting a whole vocabulary costs more than the rest."""
        tokens = torch.empty_like(rows)
        open_ = torch.arange(len(rows), device=self._device)
        for width in () if logits.is_cuda else (few for few in _LIKELIEST if few < self._vocab_size):
            tokens[open_], complete = self._filtered(logits[open_], rows[open_], positions[open_], width)
            open_ = open_[~complete]
            if not len(open_):
                return tokens
        tokens[open_], _ = self._filtered(logits[open_], rows[open_], positions[open_], self._vocab_size)
        return tokens

    def _filtered(self, logits: Tensor, rows: Tensor, positions: Tensor, width: int) -> tuple[Tensor, Tensor]:
        temperature, top_p, min_p, _ = self._floats[rows].unbind(1)
        seeds, top_k = self._ints[rows].unbind(1)
        return sampling.sample_filtered(logits, temperature, top_k, top_p, min_p, seeds, positions, width)


def _is_penalized(params: SamplingParams) -> bool:
    return params.repetition_penalty != 1.0


def _is_filtered(params: SamplingParams) -> bool:
    return params.temperature >= _COLDEST and bool(params.top_k or params.top_p < 1.0 or params.min_p)


def _is_unfiltered(params: SamplingParams) -> bool:
    return params.temperature >= _COLDEST and not _is_filtered(params)
