"""Norms, rotary embedding, the KV write and the gated activation against formulas in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from thothy_ai.kernels.activation import silu_mul
from thothy_ai.kernels.norm import add_rms_norm, rms_norm
from thothy_ai.kernels.rope import apply_rope, rotary_table, write_kv

CPU = torch.device("cpu")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rms64(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()


@pytest.mark.parametrize("shape", [(1, 5), (7, 64), (3, 4, 33)])
@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_rms_norm(shape: tuple[int, ...], eps: float) -> None:
    x, weight = normal(*shape), normal(shape[-1], seed=1)
    torch.testing.assert_close(rms_norm(x, weight, eps).double(), rms64(x, weight, eps), atol=1e-6, rtol=1e-5)


def test_rms_norm_of_a_strided_slice() -> None:
    x, weight = normal(5, 9, 16)[:, 2:5], normal(16, seed=1)
    torch.testing.assert_close(rms_norm(x, weight, 1e-6).double(), rms64(x, weight, 1e-6), atol=1e-6, rtol=1e-5)


def test_add_rms_norm_keeps_the_sum() -> None:
    x, residual, weight = normal(4, 10), normal(4, 10, seed=2), normal(10, seed=3)
    total = x.double() + residual.double()
    normed, kept = add_rms_norm(x, residual, weight, 1e-5)
    torch.testing.assert_close(kept.double(), total, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(normed.double(), rms64(total, weight, 1e-5), atol=1e-6, rtol=1e-5)


def test_bfloat16_is_computed_in_float32() -> None:
    x, weight = (normal(3, 64) * 40).bfloat16(), normal(64, seed=1).bfloat16()
    torch.testing.assert_close(rms_norm(x, weight, 1e-5).double(), rms64(x, weight, 1e-5), atol=1e-3, rtol=1e-2)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_silu_mul(size: int) -> None:
    x = normal(5, 2 * size) * 4
    gate, up = x[:, :size].double(), x[:, size:].double()
    torch.testing.assert_close(silu_mul(x).double(), gate / (1 + (-gate).exp()) * up, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("dim", [2, 10, 64])
def test_rope_turns_pairs_by_position_times_frequency(dim: int) -> None:
    frequencies = [10000.0 ** (-2 * i / dim) for i in range(dim // 2)]
    positions = torch.tensor([0, 1, 5, 255, 3])
    x = normal(5, 3, dim)
    out = apply_rope(x, rotary_table(frequencies, 1.5, 256, CPU).at(positions))
    for token, position in enumerate(positions.tolist()):
        for i, frequency in enumerate(frequencies):
            turn = 1.5 * complex(math.cos(position * frequency), math.sin(position * frequency))
            turned = torch.complex(x[token, :, i].double(), x[token, :, i + dim // 2].double()) * turn
            got = torch.complex(out[token, :, i].double(), out[token, :, i + dim // 2].double())
            torch.testing.assert_close(got, turned, atol=3e-5, rtol=1e-5)


def test_rope_keeps_the_type() -> None:
    table = rotary_table([1.0, 0.1], 1.0, 8, CPU).at(torch.tensor([3]))
    assert apply_rope(normal(1, 2, 4).bfloat16(), table).dtype == torch.bfloat16


def test_write_kv_touches_its_slots_only() -> None:
    k_cache, v_cache = torch.full((4, 3, 2, 5), torch.nan), torch.full((4, 3, 2, 5), torch.nan)
    qkv = normal(4, 8, 5)
    k, v = qkv[:, 4:6], qkv[:, 6:8]  # views of the merged projection, as in the decoder
    slots = torch.tensor([11, 3, 4, 7])
    write_kv(k, v, k_cache, v_cache, slots)
    for token, slot in enumerate(slots.tolist()):
        assert torch.equal(k_cache[slot // 3, slot % 3], k[token])
        assert torch.equal(v_cache[slot // 3, slot % 3], v[token])
    assert int(k_cache.isnan().sum()) == int(v_cache.isnan().sum()) == 8 * 2 * 5
