"""Layer norms and norms in place, in torch and in Triton, against formulas in float64."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor

from tests.support.layer_checks import TYPES, assert_near, normal
from thothy_ai.kernels.reference import layernorm as reference
from thothy_ai.kernels.triton import layernorm as triton

KINDS = pytest.mark.parametrize("kind", [reference, triton], ids=["reference", "triton"])
SIZES = [2, 33, 576, 5120]
EPS = 1e-3


def layer64(x: Tensor, weight: Tensor) -> Tensor:
    x = x.double()
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight.double()


def rms64(x: Tensor, weight: Tensor) -> Tensor:
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight.double()


def shifted(*shape: int, seed: int = 0) -> Tensor:
    """Means that are not zero, and a row of zeros."""
    x = normal(*shape, seed=seed) + torch.arange(shape[0]).view(-1, *[1] * (len(shape) - 1))
    x[1] = 0
    return x


@KINDS
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("weights", ["as x", "float32"])
def test_layer_norm(kind: ModuleType, size: int, dtype: torch.dtype, weights: str, device: torch.device) -> None:
    x, weight = shifted(5, size).to(device, dtype), normal(size, seed=1).to(device, dtype)
    weight = weight.float() + 1e-4 if weights == "float32" else weight
    before = x.clone()
    got = kind.layer_norm(x, weight, EPS)
    assert got.dtype == dtype
    assert torch.equal(x, before)
    assert_near(got, layer64(x, weight))


@KINDS
@pytest.mark.parametrize("size", SIZES)
def test_add_layer_norm(kind: ModuleType, size: int, device: torch.device) -> None:
    wide = shifted(5, 3 * size).to(device)
    x, residual, weight = wide[:, size : 2 * size], normal(5, size, seed=2).to(device), normal(size, seed=3).to(device)
    total = residual + x
    got = kind.add_layer_norm(x, residual, weight, EPS)
    torch.testing.assert_close(residual, total, atol=0, rtol=0)
    assert_near(got, layer64(total, weight))


@KINDS
def test_the_sum_is_normalized_as_it_is_kept(kind: ModuleType, device: torch.device) -> None:
    x, residual, weight = (normal(4, 64, seed=each).to(device, torch.bfloat16) for each in range(3))
    got = kind.add_layer_norm(x, residual, weight[0], EPS)
    assert_near(got, layer64(residual, weight[0]))


@KINDS
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("heads", "size"), [(1, 16), (6, 16), (5, 33), (8, 128)])
@pytest.mark.parametrize("name", ["layer_norm_heads", "rms_norm_heads"])
def test_norms_in_place(
    kind: ModuleType, name: str, heads: int, size: int, dtype: torch.dtype, device: torch.device
) -> None:
    """Over the middle of a merged projection, whose other heads stay as they are."""
    merged, weight = shifted(4, heads + 3, size).to(device, dtype), normal(heads, size, seed=1).to(device, dtype)
    before, part = merged.clone(), merged[:, 2 : 2 + heads]
    whole = name == "rms_norm_heads"
    getattr(kind, name)(part, weight.flatten() if whole else weight, EPS)
    source = before[:, 2 : 2 + heads]
    wanted = rms64(source.flatten(1), weight.flatten()).view(source.shape) if whole else layer64(source, weight)
    assert_near(part, wanted)
    assert torch.equal(merged[:, :2], before[:, :2])
    assert torch.equal(merged[:, 2 + heads :], before[:, 2 + heads :])


@KINDS
def test_no_rows(kind: ModuleType, device: torch.device) -> None:
    empty = torch.empty(0, 2, 16, device=device)
    kind.layer_norm_heads(empty, torch.ones(2, 16, device=device), EPS)
    assert kind.layer_norm(empty[:, 0], torch.ones(16, device=device), EPS).shape == (0, 16)
