"""Recurrent layers in Triton and in plain torch, over random rows, against loops over tokens in float64."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.support.interpreter import compiling_environment
from tests.support.layer_checks import normal
from thothy_ai.kernels.paged import AttentionBatch
from thothy_ai.kernels.reference import states as reference
from thothy_ai.kernels.states import Convolution, DeltaGates, SpaceGates
from thothy_ai.kernels.triton import states as triton

BOTH = pytest.mark.parametrize("kernels", [reference, triton], ids=["torch", "triton"])
SLOTS = 9
ROOT = Path(__file__).parents[3]


class Members(NamedTuple):
    """Of a step: rows, first positions and token counts, those with a single token first; and the slots in which states
    are kept.
    """

    rows: Sequence[int]
    starts: Sequence[int]
    counts: Sequence[int]
    keeps: Sequence[int] | None = None

    def batch(self, device: torch.device) -> AttentionBatch:
        def column(values: Sequence[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.int32, device=device)

        ends = [start + count for start, count in zip(self.starts, self.counts, strict=True)]
        nothing = column([0] * len(self.rows))
        return AttentionBatch(
            (nothing[:, None],), column(self.rows), column(ends), column([0, *accumulate(self.counts)]),
            nothing, nothing, list(self.counts).count(1), tuple(self.counts), tuple(ends),
            None if self.keeps is None else column(self.keeps),
        )  # fmt: skip

    def tokens(self) -> list[tuple[int, int]]:
        """The row and the position of each token."""
        return [(row, start + at) for row, start, count in zip(*self[:3], strict=True) for at in range(count)]

    def keep(self, token: int, row: int, states: dict[int, list[Tensor]] | Tensor) -> None:
        """Keep the row's state among `states`, if the step's token number `token` is one after which it is kept."""
        ends = [end - 1 for end in accumulate(self.counts)]
        if self.keeps is not None and token in ends and (slot := self.keeps[ends.index(token)]) >= 0:
            states[slot] = states[row][:] if isinstance(states, dict) else states[row]


CASES = {
    "rows that decode": Members([3, 0, 7], [5, 0, 12], [1, 1, 1]),
    "consecutive tokens of a row": Members([2, 5, 5, 5, 1, 1], [9, 0, 1, 2, 4, 5], [1] * 6),
    "the same row at the same position": Members([8, 8, 8, 4], [0, 0, 0, 1], [1] * 4),  # as padding has it
    "new and resumed chunks": Members([6, 1, 0, 4], [3, 0, 70, 2], [1, 5, 64, 3]),
    "several chunks": Members([2, 3, 5], [8, 0, 1], [1, 150, 65]),
    "kept on the way": Members([0, 2, 2, 2, 1, 3], [4, 1, 3, 73, 0, 9], [1, 2, 70, 2, 66, 3], [-1, 5, 8, -1, 6, -1]),
    "parts of a row that begins": Members([2, 2, 1, 1], [0, 80, 0, 2], [80, 5, 2, 70], [-1, 7, 4, 6]),
}


def case(name: str, *sizes: int) -> tuple[Members, Tensor]:
    members = CASES[name]
    return members, normal(sum(members.counts), *sizes, seed=len(name))


@BOTH
@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("name", CASES)
def test_a_convolution_sees_its_row_s_last_inputs(name: str, width: int, kernels, device: torch.device) -> None:
    channels = 300
    members, whole = case(name, channels + 5)
    x, before = whole[:, 5:], normal(SLOTS, width - 1, channels, seed=1)  # a part of a wider projection
    weight, bias = normal(width, channels, seed=2).t(), normal(channels, seed=3) if width == 4 else None
    weight = weight if width == 4 else weight.contiguous()
    kept = before.clone().to(device)
    there = Convolution(weight.to(device), None if bias is None else bias.to(device), silu=width == 4)
    got = kernels.convolve(whole.to(device)[:, 5:], there, kept, members.batch(device))
    memory = {row: list(before[row].double()) for row in members.rows}
    for token, (row, position) in enumerate(members.tokens()):
        if position == 0:
            memory[row] = [torch.zeros(channels).double()] * (width - 1)
        memory[row].append(x[token].double())
        members.keep(token, row, memory)
        total = (torch.stack(memory[row][-width:], 1) * weight.double()).sum(1)
        wanted = total if bias is None else functional.silu(total + bias.double())
        torch.testing.assert_close(got[token].cpu().double(), wanted, atol=1e-5, rtol=1e-5)
    repeated = {8} if name.startswith("the same row") else set()  # which of them is kept does not matter
    for row in set(range(SLOTS)) - repeated:
        wanted = torch.stack(memory[row][-(width - 1) :]).float() if row in memory else before[row]
        assert torch.equal(kept[row].cpu(), wanted), row


def delta_loop(members: Members, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, learned: Tensor, memory: Tensor):
    """The rule as it is written, token by token in float64; `memory` is overwritten."""
    out = torch.empty_like(v)
    for token, (row, position) in enumerate(members.tokens()):
        state = memory[row] * (position > 0) * decay[token].exp()[:, None, None]
        missing = v[token] - (state @ k[token].unsqueeze(-1)).squeeze(-1)
        state = state + learned[token][:, None, None] * missing.unsqueeze(-1) * k[token].unsqueeze(-2)
        memory[row] = state
        members.keep(token, row, memory)
        out[token] = (state @ q[token].unsqueeze(-1)).squeeze(-1)
    return out


@BOTH
@pytest.mark.parametrize(("key_heads", "heads", "keys", "values"), [(2, 6, 8, 12), (1, 2, 40, 33)])
@pytest.mark.parametrize("name", CASES)
def test_the_gated_delta_rule(
    name: str, key_heads: int, heads: int, keys: int, values: int, kernels, device: torch.device
) -> None:
    members, mixed = case(name, 2 * key_heads * keys + heads * values)
    mixed[:, : key_heads * keys] *= 3.0
    tokens = len(mixed)
    gates, before = normal(tokens, 2 * heads, seed=4), normal(SLOTS, heads, values, keys, seed=5)
    rate, offset = -normal(heads, seed=6).abs(), normal(heads, seed=7)
    if name == "several chunks":  # keys that repeat each other, of a row that forgets nothing
        mixed[:, key_heads * keys : 2 * key_heads * keys] = mixed[0, key_heads * keys : 2 * key_heads * keys]
        rate[0], gates[:, 0] = 0.0, 20.0
    memory = before.clone().to(device)
    there = DeltaGates(rate.to(device), offset.to(device))
    learned, forgotten = gates.to(device).split(heads, dim=1)
    got = kernels.gated_delta(mixed.to(device), learned, forgotten, there, memory, members.batch(device))
    assert got.dtype == torch.float32

    q, k, v = mixed.double().split((key_heads * keys, key_heads * keys, heads * values), dim=1)
    q, k = (functional.normalize(each.view(tokens, key_heads, keys), dim=-1, eps=1e-9) for each in (q, k))
    q, k = (each.repeat_interleave(heads // key_heads, 1) for each in (q / keys**0.5, k))
    b, a = gates.double().split(heads, dim=1)
    decay, after = rate.double() * functional.softplus(a + offset.double()), before.double()
    wanted = delta_loop(members, q, k, v.view(tokens, heads, values), decay, b.sigmoid(), after)
    torch.testing.assert_close(got.cpu().double(), wanted, atol=2e-4, rtol=1e-4)
    if name.startswith("the same row"):
        after[8] = memory[8].cpu().double()
    torch.testing.assert_close(memory.cpu().double(), after, atol=2e-4, rtol=1e-4)


@BOTH
@pytest.mark.parametrize(("groups", "heads", "keys", "values"), [(2, 6, 8, 12), (1, 2, 40, 33)])
@pytest.mark.parametrize("name", CASES)
def test_a_state_space(
    name: str, groups: int, heads: int, keys: int, values: int, kernels, device: torch.device
) -> None:
    members, mixed = case(name, heads * values + 2 * groups * keys)
    tokens = len(mixed)
    steps, before = normal(tokens, heads, seed=4), normal(SLOTS, heads, values, keys, seed=5)
    rate, offset, skip = -normal(heads, seed=6).abs(), normal(heads, seed=7), normal(heads, seed=8)
    memory = before.clone().to(device)
    gates = SpaceGates(*(each.to(device) for each in (rate, offset, skip)))
    got = kernels.state_space(mixed.to(device), steps.to(device), gates, memory, members.batch(device))

    v, k, q = mixed.double().split((heads * values, groups * keys, groups * keys), dim=1)
    k, q = (each.view(tokens, groups, keys).repeat_interleave(heads // groups, 1) for each in (k, q))
    v, step = v.view(tokens, heads, values), functional.softplus(steps.double() + offset.double())
    after, wanted = before.double(), torch.empty(tokens, heads, values).double()
    for token, (row, position) in enumerate(members.tokens()):
        left = after[row] * (position > 0) * (rate.double() * step[token]).exp()[:, None, None]
        after[row] = left + (step[token][:, None] * v[token]).unsqueeze(-1) * k[token].unsqueeze(-2)
        members.keep(token, row, after)
        read = (after[row] @ q[token].unsqueeze(-1)).squeeze(-1)
        wanted[token] = read + skip.double()[:, None] * v[token]
    torch.testing.assert_close(got.cpu().double(), wanted, atol=5e-4, rtol=1e-4)
    if name.startswith("the same row"):
        after[8] = memory[8].cpu().double()
    torch.testing.assert_close(memory.cpu().double(), after, atol=5e-4, rtol=1e-4)


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0])
def test_the_gated_delta_rule_in_float16(scale: float, device: torch.device, *, repeated: bool) -> None:
    """Queries and keys are multiplied at any length before they are scaled: nothing overflows, and little is lost. Keys
    that repeat, learnt whole and never forgotten, make the systems that are hardest to invert.
    """
    key_heads, heads, keys, values = 2, 6, 40, 33
    members, mixed = case("several chunks", 2 * key_heads * keys + heads * values)
    mixed[:, : 2 * key_heads * keys] *= scale
    if repeated:
        mixed[:, key_heads * keys : 2 * key_heads * keys] = mixed[0, key_heads * keys : 2 * key_heads * keys]
    mixed = mixed.to(device, torch.float16)
    learned, forgotten = normal(len(mixed), 2 * heads, seed=4).to(device, torch.float16).split(heads, dim=1)
    gates = DeltaGates(-normal(heads, seed=6).abs().to(device), normal(heads, seed=7).to(device))
    if repeated:
        learned, gates = learned.abs() + 10, DeltaGates(0 * gates.rate, gates.offset)
    before = normal(SLOTS, heads, values, keys, seed=5).to(device)
    memory, exact = before.clone(), before.clone()
    batch = members.batch(device)
    got = triton.gated_delta(mixed, learned, forgotten, gates, memory, batch)
    wanted = reference.gated_delta(*(each.float() for each in (mixed, learned, forgotten)), gates, exact, batch)
    step = 4 * torch.finfo(torch.float16).eps  # of the largest numbers
    for ours, others in ((got, wanted), (memory, exact)):
        torch.testing.assert_close(ours, others, atol=step * float(others.abs().max()), rtol=0)


@BOTH
def test_states_in_bfloat16_are_computed_with_in_float32(kernels, device: torch.device) -> None:
    members, mixed = case("rows that decode", 2 * 8 + 2 * 4)
    memory = normal(SLOTS, 2, 4, 8, seed=1).bfloat16().to(device)
    wide = memory.float()
    gates = DeltaGates(*(-normal(2, seed=seed).abs().to(device) for seed in (2, 3)))
    narrow, exact = (
        kernels.gated_delta(mixed.to(device), *normal(2, 3, 2).to(device), gates, each, members.batch(device))
        for each in (memory, wide)
    )
    torch.testing.assert_close(narrow, exact)  # a step later, they differ
    step = 0.0 if device.type == "cuda" or kernels is reference else 2**-7  # the interpreter cuts bfloat16 off
    torch.testing.assert_close(memory.float(), wide.bfloat16().float(), atol=0.0, rtol=step)


@BOTH
def test_what_a_slot_held_cannot_reach_a_new_row(kernels, device: torch.device) -> None:
    rows, generator = [4, 2, 6], random.Random(1)
    members = Members(rows, [0, 0, 0], [1, 3, generator.randrange(70, 80)])
    tokens = sum(members.counts)
    memory = torch.full((SLOTS, 2, 4, 8), torch.nan, device=device)
    kept = torch.full((SLOTS, 3, 24), torch.inf, device=device)
    gates = DeltaGates(torch.tensor([-1.0, -2.0], device=device), torch.zeros(2, device=device))
    mixed = kernels.convolve(
        normal(tokens, 24).to(device), Convolution(normal(24, 4, seed=1).to(device)), kept, members.batch(device)
    )
    out = kernels.gated_delta(mixed, *normal(2, tokens, 2).to(device), gates, memory, members.batch(device))
    assert out.isfinite().all()
    assert memory[rows].isfinite().all()
    assert kept[rows].isfinite().all()
    assert not memory[0].isfinite().any()


@BOTH
@pytest.mark.parametrize(("heads", "size"), [(1, 16), (6, 12), (32, 128)])
def test_gated_rms_norm(heads: int, size: int, kernels, device: torch.device) -> None:
    x, weight, wide = normal(5, heads, size), normal(size, seed=1), normal(5, 3 + heads * size, seed=2)
    gate = wide[:, 3:]
    got = kernels.gated_rms_norm(x.to(device), wide.to(device)[:, 3:], weight.to(device), 1e-5)
    normed = functional.rms_norm(x.double(), (size,), weight.double(), 1e-5).flatten(1)
    torch.testing.assert_close(got.cpu().double(), normed * functional.silu(gate.double()), atol=1e-5, rtol=1e-5)


@BOTH
@pytest.mark.parametrize(("groups", "size"), [(1, 72), (4, 12)])
def test_gate_rms_norm(groups: int, size: int, kernels, device: torch.device) -> None:
    x, weight, wide = normal(5, groups, size), normal(groups * size, seed=1), normal(5, 3 + groups * size, seed=2)
    got = kernels.gate_rms_norm(x.to(device), wide.to(device)[:, 3:], weight.to(device), 1e-5)
    gated = x.double() * functional.silu(wide[:, 3:].double()).view(x.shape)
    wanted = functional.rms_norm(gated, (size,), None, 1e-5).flatten(1) * weight.double()
    torch.testing.assert_close(got.cpu().double(), wanted, atol=1e-5, rtol=1e-5)


def test_kernels_compile_for_a_gpu() -> None:
    """Triton's interpreter runs what its compiler refuses; a GPU has 227 KiB of shared memory for a program."""
    command = [sys.executable, "-m", "tests.support.compiled_states", "bfloat16:128", "float32:12"]
    ran = subprocess.run(
        command, env=compiling_environment(), cwd=ROOT, capture_output=True, text=True, check=False, timeout=600
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    shared = dict(line.split() for line in ran.stdout.splitlines())
    assert len(shared) == 22
    assert max(map(int, shared.values())) <= 227 * 1024


@BOTH
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_states_are_copied_in_all_layers(dtype: torch.dtype, kernels, device: torch.device) -> None:
    stack = normal(3, SLOTS, 2, 70, 33).to(dtype).to(device)
    wanted = stack.clone()
    wanted[:, [1, 8]] = stack[:, [5, 6]]
    sources, targets = (torch.tensor(slots, dtype=torch.int32, device=device) for slots in ([5, 6, 3], [1, 8, 3]))
    kernels.copy_states(stack, sources, targets)
    assert torch.equal(stack, wanted)
