"""What latent attention rotates and caches: both implementations, against a textbook in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from thothy_ai.kernels.paged import LayerCache
from thothy_ai.kernels.reference import latents as reference
from thothy_ai.kernels.rotary import rotary_table
from thothy_ai.kernels.triton import latents as triton

Write = Callable[..., None]
EPS, TOKENS, PAGE, BLOCKS = 1e-3, 5, 4, 6
SIZES = [(3, 10, 20, 6), (16, 128, 512, 64), (33, 8, 256, 2)]  # heads, and numbers: plain, of the latent, that turn
TYPES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


class Case:
    """Tokens with shuffled positions and slots, whose inputs are parts of wider tensors; what nobody writes is NaN."""

    def __init__(self, sizes: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device) -> None:
        self.heads, self.plain, self.rank, self.turned = sizes
        generator = torch.Generator().manual_seed(self.rank)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(device, dtype)

        kept = self.rank + self.turned
        self.q = normal(TOKENS, self.heads * (self.plain + self.turned)).unflatten(1, (self.heads, -1))
        self.kv = normal(TOKENS, 7 + kept)[:, 7:]
        self.weight = normal(self.rank)
        self.positions = torch.randint(0, 300, (TOKENS,), generator=generator).to(device)
        self.slots = (PAGE + torch.randperm((BLOCKS - 1) * PAGE, generator=generator)[:TOKENS]).to(device)
        frequencies = [1.0 / 100 ** (each / self.turned) for each in range(0, self.turned, 2)]
        self.rotary = rotary_table(frequencies, 1.3, 300, device)
        keys = torch.full((BLOCKS, PAGE, 1, kept), torch.nan, dtype=dtype, device=device)
        self.cache = LayerCache(keys, keys[..., : self.rank])
        self.out = torch.full((TOKENS, self.heads, kept), torch.nan, dtype=dtype, device=device)

    def run(self, write: Write, *, interleaved: bool) -> None:
        write(
            self.q, self.kv, self.weight, EPS, self.rotary, self.positions, self.slots, self.cache, self.out,
            interleaved=interleaved,
        )  # fmt: skip

    def turned_by(self, x: Tensor, *, interleaved: bool) -> Tensor:
        """x [T, ..., turned] as complex numbers, each times its own."""
        pairs = x.double().unflatten(-1, (-1, 2)) if interleaved else torch.stack(x.double().chunk(2, -1), -1)
        turns = torch.complex(*(part.double() for part in self.rotary.at(self.positions)))
        turned = torch.view_as_complex(pairs.contiguous()) * turns.view(TOKENS, *[1] * (x.ndim - 2), -1)
        return torch.cat((turned.real, turned.imag), -1)


@pytest.mark.parametrize("write", [reference.rotate_and_cache_latents, triton.rotate_and_cache_latents])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("interleaved", [False, True])
def test_as_the_textbook(
    write: Write, sizes: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device, *, interleaved: bool
) -> None:
    case = Case(sizes, dtype, device)
    case.run(write, interleaved=interleaved)
    latent = case.kv[:, : case.rank].double()
    normed = latent * (latent.square().mean(-1, keepdim=True) + EPS).rsqrt() * case.weight.double()
    key = case.turned_by(case.kv[:, case.rank :], interleaved=interleaved)
    queries = case.turned_by(case.q[..., case.plain :], interleaved=interleaved)
    tolerance = TYPES[dtype]
    written = case.cache.keys.view(BLOCKS * PAGE, -1)
    for found, expected in (
        (written[case.slots], torch.cat((normed, key), -1)),
        (case.out[..., case.rank :], queries),
    ):
        torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)
    others = torch.ones(BLOCKS * PAGE, dtype=torch.bool, device=device).index_fill_(0, case.slots, value=False)
    assert written[others].isnan().all()
    assert case.out[..., : case.rank].isnan().all()  # which the caller fills


@pytest.mark.parametrize("write", [reference.rotate_and_cache_latents, triton.rotate_and_cache_latents])
@pytest.mark.parametrize(("place", "value"), [(0, torch.nan), (-1, torch.nan), (-1, torch.inf)])
def test_what_is_not_finite_is_found_by_the_key_alone(
    write: Write, place: int, value: float, device: torch.device
) -> None:
    case = Case(SIZES[0], torch.float32, device)
    case.kv[2, place] = value
    case.run(write, interleaved=True)
    row = case.cache.keys.view(BLOCKS * PAGE, -1)[case.slots[2]]
    assert row[: case.rank].isfinite().all()
    assert row[case.rank :].isnan().any()
