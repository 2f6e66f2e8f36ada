"""Norms, rotary embedding, the KV write and the gated activation against formulas in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from thothy_ai.kernels.fp8 import FP8, Quantized
from thothy_ai.kernels.paged import LayerCache
from thothy_ai.kernels.reference.activation import silu_mul, silu_mul_fp8
from thothy_ai.kernels.reference.norm import add_rms_norm, add_rms_norm_fp8, rms_norm
from thothy_ai.kernels.reference.quantize import dequantize, quantize_fp8
from thothy_ai.kernels.reference.rope import apply_rope, rotate_and_cache, write_kv
from thothy_ai.kernels.rotary import QKNorm, rotary_table

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
    normed = add_rms_norm(x, residual, weight, 1e-5)
    torch.testing.assert_close(residual.double(), total, atol=1e-6, rtol=1e-6)
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
    write_kv(k, v, LayerCache(k_cache, v_cache), slots)
    for token, slot in enumerate(slots.tolist()):
        assert torch.equal(k_cache[slot // 3, slot % 3], k[token])
        assert torch.equal(v_cache[slot // 3, slot % 3], v[token])
    assert int(k_cache.isnan().sum()) == int(v_cache.isnan().sum()) == 8 * 2 * 5


def test_fp8_keeps_three_bits_of_mantissa_and_the_largest_value() -> None:
    x = normal(6, 40) * torch.logspace(-20, 20, 6)[:, None]
    quantized = quantize_fp8(x)
    assert quantized.values.dtype == FP8
    assert quantized.scales.shape == (6, 1)
    largest = x.abs().amax(-1, keepdim=True)
    torch.testing.assert_close(quantized.scales, largest / 448)
    error = (dequantize(quantized) - x).abs()
    assert bool(
        (error <= (x.abs() / 16).maximum(largest / 448 * 2**-10)).all()
    )  # half a step; below, half the smallest
    at = x.abs().argmax(-1, keepdim=True)
    torch.testing.assert_close(dequantize(quantized).gather(1, at), x.gather(1, at))


def test_fp8_of_a_row_of_zeros_is_zeros() -> None:
    x = normal(3, 8)
    x[1], x[2] = 0, 1e-40
    quantized = quantize_fp8(x)
    assert quantized.scales[1:].tolist() == [[1], [1]]
    assert int(dequantize(quantized)[1:].count_nonzero()) == 0


def test_fused_fp8_is_the_plain_result_quantized() -> None:
    x, residual, weight = normal(4, 32), normal(4, 32, seed=2), normal(32, seed=3)
    kept = residual.clone()
    assert_same(add_rms_norm_fp8(x, residual, weight, 1e-5), quantize_fp8(add_rms_norm(x, kept, weight, 1e-5)))
    assert torch.equal(residual, kept)
    assert_same(silu_mul_fp8(x), quantize_fp8(silu_mul(x)))


def assert_same(got: Quantized, wanted: Quantized) -> None:
    assert torch.equal(got.scales, wanted.scales)
    assert torch.equal(dequantize(got), dequantize(wanted))


@pytest.mark.parametrize("normed", [False, True])
def test_rotate_and_cache_is_its_parts(normed: bool) -> None:
    heads, kv_heads, dim = 4, 2, 8
    qkv, cache = normal(3, heads + 2 * kv_heads, dim), LayerCache(*torch.full((2, 5, 4, kv_heads, dim), torch.nan))
    norms = QKNorm(normal(dim, seed=1), normal(dim, seed=2)) if normed else None
    table = rotary_table([1.0, 0.5, 0.1, 0.01], 1.0, 32, CPU)
    positions, slots = torch.tensor([7, 0, 31]), torch.tensor([13, 4, 19])
    q, k, v = qkv.clone().split((heads, kv_heads, kv_heads), dim=1)
    if norms:
        q, k = (rms64(x, weight, 1e-6).float() for x, weight in ((q, norms.query), (k, norms.key)))
    got = rotate_and_cache(qkv, norms, 1e-6, table, positions, slots, cache, heads)
    torch.testing.assert_close(got, apply_rope(q, table.at(positions)))
    torch.testing.assert_close(cache.keys.flatten(0, 1)[slots], apply_rope(k, table.at(positions)))
    torch.testing.assert_close(cache.values.flatten(0, 1)[slots], v)
    assert int(cache.keys.isnan().sum()) == (5 * 4 - 3) * kv_heads * dim


def test_an_fp8_cache_holds_a_scale_for_each_token_and_head() -> None:
    k, v = normal(2, 3, 16) * torch.tensor([1e-3, 1, 1e3])[:, None], normal(2, 3, 16, seed=1)
    cache = LayerCache(*torch.zeros(2, 2, 4, 3, 16).to(FP8), *torch.full((2, 2, 4, 3), torch.nan))
    slots = torch.tensor([6, 1])
    write_kv(k, v, cache, slots)
    assert cache.key_scales is not None
    assert cache.value_scales is not None
    for x, stored, scales in ((k, cache.keys, cache.key_scales), (v, cache.values, cache.value_scales)):
        got = stored.flatten(0, 1).float()[slots] * scales.flatten(0, 1)[slots][..., None]
        torch.testing.assert_close(got, x, rtol=1 / 16, atol=float(x.abs().max()) * 1e-5)
        torch.testing.assert_close(got.abs().amax(-1), x.abs().amax(-1))
        assert int(scales.isnan().sum()) == (8 - 2) * 3
