"""A wrapper adds to any linear layer what the adapters of a pass's tokens say, and nothing without them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from thothy_ai.engine.models.layers.adapted import AdapterBank, HostWeights
from thothy_ai.engine.models.layers.linear import DenseLinear, Fp8Format, Linear, SeparateLinears, linear
from thothy_ai.engine.models.layers.mlp import GeGLU, SwiGLU
from thothy_ai.kernels.reference.operations import ReferenceOperations
from thothy_ai.kernels.reference.quantize import dequantize, quantize_fp8

OPERATIONS = ReferenceOperations()
CPU = torch.device("cpu")
ROWS = {"a": 32, "b": 16}
LAYERS: dict[str, Callable[[Tensor], Linear]] = {
    "dense": lambda weight: DenseLinear(weight, None, shared=False),
    "packed": linear,
    "fp8": Fp8Format(OPERATIONS),
    "separate": lambda weight: SeparateLinears(
        [linear(weight[:32].clone()), Fp8Format(OPERATIONS)(weight[32:].clone())]
    ),
}


@pytest.mark.parametrize("parts", [{"gate": 24, "up": 24}, {"gate_up": 48}], ids=str)
@pytest.mark.parametrize("kind", [SwiGLU, GeGLU])
def test_an_mlp_is_that_of_merged_weights(kind: type[SwiGLU | GeGLU], parts: dict[str, int]) -> None:
    generator = torch.Generator().manual_seed(4)
    gate_up, down = torch.randn(48, 40, generator=generator), torch.randn(40, 24, generator=generator)
    bank = AdapterBank(OPERATIONS)
    mlp = kind(bank.wrapped(linear(gate_up), parts, 40, {}), bank.wrapped(linear(down), {"down": 40}, 24, {}))
    bank.allocate(1, 16, 3, torch.float32, CPU)
    numbers = torch.randn(bank.numbers_per_slot(16), generator=generator) * 0.1
    bank.fill(0, HostWeights(numbers, torch.tensor([16, 16], dtype=torch.int32)))
    (a, b), (down_a, down_b) = ((a[0], b[0]) for a, b in bank.views(numbers[None], 16))
    added = [ours @ low for ours, low in zip(b.chunk(len(parts)), a.chunk(len(parts)), strict=True)]
    merged = kind(linear(gate_up + torch.cat(added)), linear(down + down_b @ down_a))
    x = torch.randn(3, 40, generator=generator)
    bank.buffer[:] = torch.tensor([0, 1, 0])
    bank.begin(3)
    made = mlp(x, OPERATIONS)
    bank.end()
    torch.testing.assert_close(made[[0, 2]], merged(x, OPERATIONS)[[0, 2]], atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(made[1], mlp(x, OPERATIONS)[1])


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_what_is_added(name: str, quantized: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    layer = LAYERS[name](torch.randn(48, 64, generator=generator))
    bank = AdapterBank(OPERATIONS)
    bank.wrapped(layer, {"other": 16}, 8, {})  # another layer's weights come first in a slot
    order = torch.randperm(16, generator=generator)
    adapted = bank.wrapped(layer, ROWS, 64, {"b": order})
    bank.allocate(2, 5, 6, torch.float32, CPU)
    numbers = torch.randn(bank.numbers_per_slot(5), generator=generator)
    bank.fill(1, HostWeights(numbers, torch.tensor([0, 16], dtype=torch.int32)))
    x = torch.randn(6, 64, generator=generator)
    given = quantize_fp8(x) if quantized else x
    plain = layer(given)
    assert torch.equal(adapted(given), plain)
    bank.buffer[:6] = torch.tensor([2, 1, 2, 1, 0, 1])
    bank.begin(6)
    added = adapted(given) - plain
    a, b = (view[0] for view in bank.views(numbers[None], 16)[1])
    low = (dequantize(given) if quantized else x) @ a.t()
    wanted = torch.cat((low[:, :16] @ b[:32].t(), low[:, 16:] @ b[32:].t()), 1)
    torch.testing.assert_close(added[[1, 3, 5]], wanted[[1, 3, 5]], atol=1e-3, rtol=1e-3)
    assert torch.equal(added[[0, 2, 4]], torch.zeros(3, 48))  # of none, and of an adapter that leaves the layer alone
    assert bank.modules["b"].order is order
    bank.narrow(torch.tensor([3, 0]))
    torch.testing.assert_close(adapted(x[[3, 0]])[1], layer(x[[3, 0]])[1])
    bank.end()
    assert torch.equal(adapted(given), plain)
