"""QK-norm, RoPE and the KV write in one kernel, against the reference in float64 and poisoned caches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from tests.support.layer_checks import TYPES, assert_near, normal
from thothy_ai.kernels.fp8 import FP8
from thothy_ai.kernels.paged import LayerCache
from thothy_ai.kernels.reference import rope
from thothy_ai.kernels.rotary import QKNorm, Rotary, rotary_table
from thothy_ai.kernels.triton.rope import rotate_and_cache

EPS = 1e-3
CONTEXT = 512
Write = Callable[..., Tensor]
HEADS = {"mha": (3, 3), "gqa": (8, 2), "mqa": (5, 1), "llama": (32, 8)}


@dataclass(frozen=True)
class Case:
    """T tokens with shuffled positions and slots. `turned` dimensions of a head turn; None: all."""

    heads: int
    kv_heads: int
    dim: int
    dtype: torch.dtype
    device: torch.device
    normed: bool = False
    tokens: int = 3
    page: int = 16
    blocks: int = 5
    turned: int | None = None
    keys_only: bool = False

    @property
    def qkv(self) -> Tensor:
        shape = (self.tokens, self.heads + (1 if self.keys_only else 2) * self.kv_heads, self.dim)
        return normal(*shape).to(self.device, self.dtype)

    @property
    def norms(self) -> QKNorm | None:
        return (
            QKNorm(*normal(3 if self.keys_only else 2, self.dim, seed=1).to(self.device, self.dtype))
            if self.normed
            else None
        )

    @property
    def table(self) -> Rotary | None:
        turned = self.dim if self.turned is None else self.turned
        frequencies = [10000.0 ** (-2 * i / turned) for i in range(turned // 2)]
        return rotary_table(frequencies, 1.25, CONTEXT, self.device) if turned else None

    @property
    def positions(self) -> Tensor:
        return torch.tensor([CONTEXT - 1, 0, 77, *(100 + i % 400 for i in range(self.tokens - 3))], device=self.device)

    @property
    def slots(self) -> Tensor:
        draw = torch.randperm(self.blocks * self.page, generator=torch.Generator().manual_seed(3))
        return draw[: self.tokens].to(self.device)

    def wanted(self) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v float64 of each token."""
        qkv, end = self.qkv.double(), self.heads + self.kv_heads
        parts = [qkv[:, : self.heads], qkv[:, self.heads : end], qkv[:, -self.kv_heads :]]
        if self.norms:
            parts = [
                x if weight is None else x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight.double()
                for x, weight in zip(parts, self.norms, strict=True)
            ]
        q, k, v = parts
        return self._turned(q), self._turned(k), v

    def _turned(self, x: Tensor) -> Tensor:
        if self.table is None:
            return x
        cos, sin = (each[:, None].double() for each in self.table.at(self.positions))
        half = cos.shape[-1]
        first, second, rest = x.split((half, half, self.dim - 2 * half), dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)

    def run(self, cache: LayerCache) -> Tensor:
        qkv = self.qkv
        before = qkv.clone()
        out = rotate_and_cache(qkv, self.norms, EPS, self.table, self.positions, self.slots, cache, self.heads)
        assert torch.equal(qkv, before)
        return out


def poisoned(case: Case) -> LayerCache:
    shape = (2, case.blocks, case.page, case.kv_heads, case.dim)
    return LayerCache(*torch.full(shape, torch.nan, dtype=case.dtype, device=case.device))


def poisoned_fp8(case: Case) -> LayerCache:
    shape = (2, case.blocks, case.page, case.kv_heads)
    bytes_ = torch.full((*shape, case.dim), 0x7F, dtype=torch.uint8, device=case.device)
    return LayerCache(*bytes_.view(FP8), *torch.full(shape, torch.nan, device=case.device))


def stored(cache: Tensor, scales: Tensor | None, case: Case) -> Tensor:
    """What the case's slots hold, float64; asserts that no other slot was written."""
    values = cache.double() if scales is None else cache.double() * scales[..., None].double()
    values = values.reshape(-1, case.kv_heads, case.dim)
    untouched = torch.ones(len(values), dtype=torch.bool, device=case.device)
    untouched[case.slots] = False
    assert bool(values[untouched].isnan().all())
    return values[case.slots]


def check(case: Case) -> None:
    cache = poisoned(case)
    q, k, v = case.wanted()
    got = case.run(cache)
    assert got.is_contiguous()
    assert_near(got, q)
    assert_near(stored(cache.keys, None, case).to(case.dtype), k)
    if case.keys_only:
        assert_near(stored(cache.values, None, case).to(case.dtype), v)
    else:
        assert torch.equal(stored(cache.values, None, case), v)


def check_fp8(case: Case) -> None:
    cache = poisoned_fp8(case)
    q, k, v = case.wanted()
    assert_near(case.run(cache), q)
    for x, values, scales in ((k, cache.keys, cache.key_scales), (v, cache.values, cache.value_scales)):
        half_step = (x.abs() / 16).maximum(x.abs().amax(-1, keepdim=True) / 448 * 2**-10)
        assert bool(((stored(values, scales, case) - x).abs() <= half_step * 1.05).all())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("heads", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("normed", [False, True])
def test_head_counts(heads: tuple[int, int], normed: bool, dtype: torch.dtype, device: torch.device) -> None:
    check(Case(*heads, 64, dtype, device, normed))
    check_fp8(Case(*heads, 64, dtype, device, normed))


@pytest.mark.parametrize("heads", HEADS.values(), ids=HEADS)
def test_values_that_are_the_keys_before_their_norm(heads: tuple[int, int], device: torch.device) -> None:
    check(Case(*heads, 64, torch.bfloat16, device, normed=True, keys_only=True))
    check_fp8(Case(*heads, 64, torch.bfloat16, device, normed=True, keys_only=True))


def test_queries_of_another_layer_s_cache(device: torch.device) -> None:
    case = Case(6, 2, 64, torch.float32, device, normed=True)
    cache, (queries, _, _) = poisoned(case), case.wanted()
    alone = case.qkv[:, : case.heads]
    got = rotate_and_cache(alone, case.norms, EPS, case.table, case.positions, case.slots, cache, case.heads)
    assert_near(got, queries)
    assert bool(cache.keys.isnan().all())


@pytest.mark.parametrize("dim", [2, 8, 16, 64, 80, 96, 128, 256, 512])
@pytest.mark.parametrize("normed", [False, True])
def test_head_sizes(dim: int, normed: bool, device: torch.device) -> None:
    check(Case(4, 2, dim, torch.bfloat16, device, normed))
    check_fp8(Case(4, 2, dim, torch.bfloat16, device, normed))


@pytest.mark.parametrize(
    ("dim", "turned"), [(128, 64), (128, 96), (64, 2), (64, 62), (80, 32), (6, 4), (128, 0), (80, 0)]
)
@pytest.mark.parametrize("normed", [False, True])
def test_partial_and_no_rotation(dim: int, turned: int, normed: bool, device: torch.device) -> None:
    case = Case(5, 1, dim, torch.float32, device, normed, turned=turned)
    check(case)
    check_fp8(case)
    reference = poisoned(case)
    arguments = (case.qkv, case.norms, EPS, case.table, case.positions, case.slots)
    assert_near(rope.rotate_and_cache(*arguments, reference, case.heads), case.wanted()[0])
    assert_near(stored(reference.keys, None, case).to(case.dtype), case.wanted()[1])


def test_many_tokens(device: torch.device) -> None:
    tokens = 4099 if torch.cuda.is_available() else 17  # the interpreter takes each token alike
    case = Case(32, 8, 128, torch.bfloat16, device, normed=True, tokens=tokens, blocks=tokens // 8)
    check(case)
    check_fp8(case)


@pytest.mark.parametrize("page", [1, 4, 64, 128])
def test_block_sizes(page: int, device: torch.device) -> None:
    check(Case(4, 2, 16, torch.float32, device, page=page, tokens=5))
    check_fp8(Case(4, 2, 16, torch.float32, device, page=page, tokens=5))


def test_equals_the_reference(device: torch.device) -> None:
    case = Case(8, 4, 32, torch.float32, device, normed=True, tokens=7)
    mine, theirs = poisoned(case), poisoned(case)
    got = case.run(mine)
    arguments = (case.qkv, case.norms, EPS, case.table, case.positions, case.slots)
    torch.testing.assert_close(got, rope.rotate_and_cache(*arguments, theirs, case.heads), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(mine.keys, theirs.keys, atol=1e-5, rtol=1e-5, equal_nan=True)
    torch.testing.assert_close(mine.values, theirs.values, atol=0, rtol=0, equal_nan=True)


def test_another_memory_order_of_the_cache(device: torch.device) -> None:
    case = Case(4, 2, 16, torch.float32, device, tokens=5)
    shape = (case.blocks, case.kv_heads, case.page, case.dim)
    by_head = LayerCache(*(torch.full(shape, torch.nan, device=device).transpose(1, 2) for _ in range(2)))
    case.run(by_head)
    plain = poisoned(case)
    case.run(plain)
    torch.testing.assert_close(by_head.keys, plain.keys, atol=0, rtol=0, equal_nan=True)
    torch.testing.assert_close(by_head.values, plain.values, atol=0, rtol=0, equal_nan=True)


def test_a_row_of_zeros_is_cached_as_zeros_of_scale_one(device: torch.device) -> None:
    case = Case(2, 1, 8, torch.float32, device)
    cache = poisoned_fp8(case)
    rotate_and_cache(torch.zeros_like(case.qkv), None, EPS, case.table, case.positions, case.slots, cache, case.heads)
    assert int(stored(cache.values, cache.value_scales, case).count_nonzero()) == 0
    assert cache.value_scales is not None
    assert cache.value_scales.flatten(0, 1)[case.slots].eq(1).all()


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of numpy, which interprets the kernel
@pytest.mark.parametrize("write", [rope.rotate_and_cache, rotate_and_cache], ids=["reference", "triton"])
@pytest.mark.parametrize("make_cache", [poisoned, poisoned_fp8], ids=["plain", "fp8"])
@pytest.mark.parametrize("flaw", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("broken", [slice(4, 6), slice(6, 8), slice(0, 8)], ids=["keys", "values", "all"])
def test_what_is_not_finite_is_a_key_of_nan_and_a_value_of_zero(
    broken: slice, flaw: float, make_cache: Callable[[Case], LayerCache], write: Write, device: torch.device
) -> None:
    case = Case(4, 2, 16, torch.bfloat16, device)
    sound, flawed = make_cache(case), make_cache(case)
    qkv = case.qkv
    write(qkv, None, EPS, case.table, case.positions, case.slots, sound, case.heads)
    qkv[1, broken, 3] = flaw
    write(qkv, None, EPS, case.table, case.positions, case.slots, flawed, case.heads)
    keys, values = stored(flawed.keys, flawed.key_scales, case), stored(flawed.values, flawed.value_scales, case)
    assert keys[1].isnan().any(-1).all()
    assert values.isfinite().all()
    if broken.stop == 8:
        assert values[1, :, 3].eq(0).all()
    for part, scales in ((sound.keys, sound.key_scales), (sound.values, sound.value_scales)):
        wanted, got = stored(part, scales, case), keys if part is sound.keys else values
        assert torch.equal(got[::2], wanted[::2])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="8 GiB of cache")
def test_offsets_past_two_to_the_31(device: torch.device) -> None:
    blocks, page, dim = 2**31 // (128 * 128) + 64, 128, 128
    keys, values = (torch.empty(blocks, page, 1, dim, dtype=torch.bfloat16, device=device) for _ in range(2))
    case = Case(2, 1, dim, torch.bfloat16, device)
    slots = torch.tensor([0, blocks * page - 1, blocks * page - page - 3], device=device)
    rotate_and_cache(case.qkv, None, EPS, case.table, case.positions, slots, LayerCache(keys, values), case.heads)
    assert torch.equal(values.view(-1, 1, dim)[slots], case.qkv[:, -1:])
