"""Adapters of a layer's linears: what their two kernels add to its matmuls."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from benchmarks.kernels.layers import LLAMA, OPERATIONS, Shape, timed
from thothy_ai.engine.models.layers.adapted import AdapterBank, HostWeights
from thothy_ai.engine.models.layers.linear import linear

Row = tuple[str, ...]
HEADER: Row = ("model", "adapters", "tokens", "matmuls, us", "with adapters, us", "more")
TOKENS = (16, 64, 160, 320, 8192)
ADAPTERS = (8, 64)
RANK = 16


class Layer:
    """The linears of a layer, as many adapters as given, and what to multiply."""

    def __init__(self, shape: Shape, adapters: int, tokens: int) -> None:
        heads = [shape.heads * shape.dim, shape.kv_heads * shape.dim, shape.kv_heads * shape.dim]
        parts = {"qkv": heads, "output": [shape.hidden], "gate_up": [shape.inner] * 2, "down": [shape.hidden]}
        self._bank = AdapterBank(OPERATIONS)
        self._layers = []
        for name, (outputs, inputs) in shape.matmuls.items():
            modules = {f"{name}.{part}": rows for part, rows in enumerate(parts[name])}
            layer = linear(torch.randn(outputs, inputs, dtype=torch.bfloat16, device="cuda"))
            x = torch.randn(tokens, inputs, dtype=torch.bfloat16, device="cuda")
            self._layers.append((self._bank.wrapped(layer, modules, inputs, {}), x))
        self._bank.allocate(adapters, RANK, tokens, torch.bfloat16, torch.device("cuda"))
        ranks = torch.full((self._bank.num_sites,), RANK, dtype=torch.int32)
        for slot in range(adapters):
            numbers = torch.randn(self._bank.numbers_per_slot(RANK), dtype=torch.bfloat16)
            self._bank.fill(slot, HostWeights(numbers, ranks))
        self._bank.buffer.copy_(torch.arange(tokens) % adapters)
        self._bank.begin(tokens)
        self._sorted = self._bank.tokens

    def run(self, *, adapted: bool) -> list[Tensor]:
        self._bank.tokens = self._sorted if adapted else None
        return [layer(x) for layer, x in self._layers]


def measure() -> list[Row]:
    """Decode steps and a prompt, in CUDA graphs. A step sorts its tokens once for all layers, which is not counted."""
    rows = []
    for adapters in ADAPTERS:
        for tokens in TOKENS:
            layer = Layer(LLAMA, adapters, tokens)
            plain, adapted = (1e3 * timed([partial(layer.run, adapted=on)]) for on in (False, True))
            figures = f"{plain:.1f}", f"{adapted:.1f}", f"{adapted / plain - 1:.1%}"
            rows.append((LLAMA.name, f"{adapters}", f"{tokens:,}", *figures))
    return rows
