"""Recurrent layers in plain torch: a short convolution, the gated delta rule, and state spaces.

Members with a single token are computed together, all others one by one. Both keep their state in the rows' slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.paged import AttentionBatch
from thothy_ai.kernels.states import Convolution, DeltaGates, SpaceGates

_CHUNK = 64  # tokens
_EPS = 1e-6  # beside the squared length of a query or a key


class _Run(NamedTuple):
    """R rows with as many tokens each. `tokens` [R, n] are their places in the step, `fresh` [R] says which begin.
    States after the tokens go to slots `targets`: R, or any number if there is one row.
    """

    rows: Tensor
    targets: Tensor
    tokens: Tensor
    fresh: Tensor


class _Chunk(NamedTuple):
    """Queries, keys and values [R, H, n, ...] of n tokens, and the gates [R, H, n] by which they forget and learn."""

    q: Tensor
    k: Tensor
    v: Tensor
    decay: Tensor
    learned: Tensor

    def read(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Results [R, H, n, V], and the state [R, H, V, K] after the tokens.

        What each token adds to the state depends on what those before it added: one triangular system for the chunk.
        """
        ages, learned = self.decay.cumsum(-1), self.learned.unsqueeze(-1)
        missing = learned * (self.v - ages.exp().unsqueeze(-1) * (self.k @ state.mT))
        system = (learned * (self.k @ self.k.mT) * _since(ages)).tril(-1)
        added = torch.linalg.solve_triangular(system, missing, upper=False, unitriangular=True)
        return self._read(state, ages, added)

    def read_sums(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """The same where each token adds its value times what is learned, whatever the state has."""
        return self._read(state, self.decay.cumsum(-1), self.learned.unsqueeze(-1) * self.v)

    def _read(self, state: Tensor, ages: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
        reached = ages.exp().unsqueeze(-1)
        out = reached * (self.q @ state.mT) + (self.q @ self.k.mT * _since(ages)) @ added
        left = (ages[..., -1:] - ages).exp().unsqueeze(-1)
        return out, reached[..., -1:, :] * state + added.mT @ (left * self.k)


def convolve(
    x: Tensor, convolution: Convolution, inputs: Tensor, batch: AttentionBatch, out: Tensor | None = None
) -> Tensor:
    """The convolution of x [T, channels] over each row's tokens -> [T, channels], in `out` if that is given; `inputs`
    [slots, kept, channels] are those before the step, and become those after it.
    """
    out = x.new_empty(x.shape) if out is None else out
    kept = inputs.shape[1]
    for rows, targets, tokens, fresh in _runs(batch, x.device):
        before = inputs[rows].masked_fill(fresh[:, None, None], 0.0)
        span = torch.cat((before, x[tokens]), dim=1)
        inputs[targets] = span[:, span.shape[1] - kept :]
        weight = convolution.weight.unsqueeze(1)
        mixed = functional.conv1d(span.transpose(1, 2), weight, convolution.bias, groups=x.shape[1])
        out[tokens] = (functional.silu(mixed) if convolution.silu else mixed).transpose(1, 2)
    return out


def copy_states(stack: Tensor, sources: Tensor, targets: Tensor) -> None:
    """Copy slots `sources` [N] of `stack` [layers, slots, ...] to slots `targets` [N], both int32; no slot is in both,
    unless it is copied to itself.
    """
    stack[:, targets] = stack[:, sources]


def gated_delta(
    mixed: Tensor,
    learned: Tensor,
    forgotten: Tensor,
    gates: DeltaGates,
    memory: Tensor,
    batch: AttentionBatch,
    out: Tensor | None = None,
) -> Tensor:
    """The gated delta rule (Yang et al., "Gated Delta Networks", 2025) over each row's tokens -> [T, H, V] float32,
    in `out` if that is given.

    `mixed` [T, 2 * key_heads * K + H * V] has queries, keys and values, `learned` and `forgotten` [T, H] what the gates
    are computed of. A key head is shared by neighbouring heads. `memory` [slots, H, V, K] has the states before the
    step, and then those after it.
    """
    _, heads, values, keys = memory.shape
    of_keys = (mixed.shape[1] - heads * values) // 2
    q, k, v = mixed.float().split((of_keys, of_keys, heads * values), dim=1)
    q, k = (each.unflatten(1, (-1, keys)) for each in (q, k))
    q, k = (each * torch.rsqrt((each * each).sum(-1, keepdim=True) + _EPS) for each in (q, k))
    q, k = (each.repeat_interleave(heads // each.shape[1], dim=1) for each in (q * keys**-0.5, k))
    v = v.unflatten(1, (heads, values))
    decay = gates.rate * functional.softplus(forgotten.float() + gates.offset)
    learned = learned.float().sigmoid()
    if out is None:
        out = torch.empty_like(v, memory_format=torch.contiguous_format)
    for rows, targets, tokens, fresh in _runs(batch, mixed.device):
        state = memory[rows].float().masked_fill(fresh[:, None, None, None], 0.0)
        for begin in range(0, tokens.shape[1], _CHUNK):
            some = tokens[:, begin : begin + _CHUNK]
            chunk = _Chunk(*(each[some].transpose(1, 2) for each in (q, k, v, decay, learned)))
            made, state = chunk.read(state)
            out[some] = made.transpose(1, 2)
        memory[targets] = state.to(memory.dtype)
    return out


def state_space(
    mixed: Tensor, steps: Tensor, gates: SpaceGates, memory: Tensor, batch: AttentionBatch, out: Tensor | None = None
) -> Tensor:
    """A selective state space (Dao and Gu, "Transformers are SSMs" (Mamba-2), 2024) over each row's tokens
    -> [T, H, V] float32, in `out` if that is given.

    `mixed` [T, H * V + 2 * groups * K] has values, and what they are written and read by (B and C, as keys and
    queries), which neighbouring heads share; `steps` [T, H] is what their steps are computed of. `memory`
    [slots, H, V, K] has the states before the step, and then those after it.
    """
    _, heads, values, keys = memory.shape
    of_keys = (mixed.shape[1] - heads * values) // 2
    v, k, q = mixed.float().split((heads * values, of_keys, of_keys), dim=1)
    k, q = (each.unflatten(1, (-1, keys)) for each in (k, q))
    k, q = (each.repeat_interleave(heads // each.shape[1], dim=1) for each in (k, q))
    v = v.unflatten(1, (heads, values))
    step = functional.softplus(steps.float() + gates.offset)
    if out is None:
        out = torch.empty_like(v, memory_format=torch.contiguous_format)
    for rows, targets, tokens, fresh in _runs(batch, mixed.device):
        state = memory[rows].float().masked_fill(fresh[:, None, None, None], 0.0)
        for begin in range(0, tokens.shape[1], _CHUNK):
            some = tokens[:, begin : begin + _CHUNK]
            chunk = _Chunk(*(each[some].transpose(1, 2) for each in (q, k, v, gates.rate * step, step)))
            made, state = chunk.read_sums(state)
            out[some] = made.transpose(1, 2) + gates.skip[:, None] * v[some]
        memory[targets] = state.to(memory.dtype)
    return out


def gate_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [T, groups, N] float32 times silu(gate) [T, groups * N], normalized group by group, times weight [groups * N]
    -> [T, groups * N] in the gate's type.
    """
    gated = x * functional.silu(gate.float()).view(x.shape)
    normed = functional.rms_norm(gated, x.shape[-1:], None, eps).flatten(1)
    return (normed * weight.float()).to(gate.dtype)


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [T, H, N] float32, normalized head by head, times weight [N] and silu(gate) [T, H * N] -> [T, H * N] in the
    gate's type.
    """
    normed = functional.rms_norm(x, x.shape[-1:], weight.float(), eps).flatten(1)
    return (normed * functional.silu(gate.float())).to(gate.dtype)


def _since(ages: Tensor) -> Tensor:
    """What is left of token j by token i, [..., n, n]."""
    return (ages.unsqueeze(-1) - ages.unsqueeze(-2)).tril().exp().tril()


def _runs(batch: AttentionBatch, device: torch.device) -> Iterator[_Run]:
    """The step's tokens by row: rows with one token together, others each by itself, in the step's order. A run of
    several tokens ends where its state is kept, which then has two targets.
    """
    runs: list[tuple[int, int, int, int, int]] = []  # row, first position, first token, tokens, slot for its state
    place = 0
    keeps = [-1] * len(batch.query_lens) if batch.keeps is None else batch.keeps.tolist()
    for row, count, end, kept in zip(batch.rows.tolist(), batch.query_lens, batch.kv_lens, keeps, strict=True):
        last = runs[-1] if runs else (-1, 0, 0, 0, -1)
        if last[0] == row and last[1] + last[3] == end - count and last[4] < 0:
            runs[-1] = (*last[:3], last[3] + count, kept)
        else:
            runs.append((row, end - count, place, count, kept))
        place += count
    singles = [run for run in runs if run[3] == 1]
    for some in filter(None, ([*singles], *([run] for run in runs if run[3] > 1))):
        rows, starts, places, counts, slots = zip(*some, strict=True)
        tokens = torch.tensor(places, device=device).unsqueeze(1) + torch.arange(counts[0], device=device)
        sources, fresh = torch.tensor(rows, device=device), torch.tensor(starts, device=device) == 0
        kept = counts[0] > 1 and slots[0] >= 0
        targets = torch.tensor([*rows, *slots], device=device) if kept else sources
        yield _Run(sources, targets, tokens, fresh)
