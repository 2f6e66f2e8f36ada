"""The importance of KV blocks: both implementations against numpy in float64, over poisoned caches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from thothy_ai.kernels.fp8 import FP8
from thothy_ai.kernels.paged import LayerCache
from thothy_ai.kernels.reference import importance as reference
from thothy_ai.kernels.reference.rope import write_kv
from thothy_ai.kernels.triton import importance as triton

Add = Callable[..., None]
BLOCKS, READ = 9, (7, 2, 5)
SHAPES = [(16, 2, 64), (32, 8, 128), (4, 3, 20), (1, 1, 8)]  # tokens of a block, heads, numbers of a head


def filled(shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> LayerCache:
    """A layer's cache, one of two that share their blocks, in which only the blocks that are read are written."""
    page, heads, dim = shape
    generator = torch.Generator().manual_seed(dim)
    poison = torch.full((2, BLOCKS, 2 * page * heads * dim), torch.nan, device=device).to(dtype)
    keys, values = (part[:, page * heads * dim :].unflatten(1, shape) for part in poison)
    scales = [torch.full((BLOCKS, page, heads), torch.nan, device=device) for _ in range(2)] if dtype == FP8 else []
    cache = LayerCache(keys, values, *scales)
    written = torch.float32 if dtype == FP8 else dtype
    k, v = torch.randn(2, len(READ) * page, heads, dim, generator=generator).to(device, written)
    k[0, 0] = 0  # as a padding token's can be
    slots = (torch.tensor(READ)[:, None] * page + torch.arange(page)).flatten().to(device)
    write_kv(k, v, cache, slots)
    return cache


@pytest.mark.parametrize("add", [reference.add_importance, triton.add_importance])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, FP8])
def test_the_mean_of_value_over_key_is_added(
    add: Add, shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device
) -> None:
    cache = filled(shape, dtype, device)
    importance = torch.tensor([0.5, 1.0, 2.0], device=device)
    add(cache, torch.tensor(READ, dtype=torch.int32, device=device), importance)
    keys, values = (part[list(READ)].double().cpu().numpy() for part in cache[:2])
    if cache.key_scales is not None and cache.value_scales is not None:
        scales = (part[list(READ)].double().cpu().numpy()[..., None] for part in (cache.key_scales, cache.value_scales))
        keys, values = (part * scale for part, scale in zip((keys, values), scales, strict=True))
    ratios = np.linalg.norm(values, axis=-1) / np.maximum(np.linalg.norm(keys, axis=-1), 1e-6)
    np.testing.assert_allclose(importance.cpu() - torch.tensor([0.5, 1.0, 2.0]), ratios.mean((1, 2)), rtol=1e-5)


@pytest.mark.parametrize("add", [reference.add_importance, triton.add_importance])
def test_a_broken_key_shows(add: Add, device: torch.device) -> None:
    cache = filled(SHAPES[0], torch.bfloat16, device)
    cache.keys[READ[1], 3, 1, 5] = torch.nan
    importance = torch.zeros(len(READ), device=device)
    add(cache, torch.tensor(READ, dtype=torch.int32, device=device), importance)
    assert importance.isnan().tolist() == [False, True, False]
