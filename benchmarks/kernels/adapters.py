"""Adapters of a layer's linears: what they add to its matmuls and its activation."""

from __future__ import annotations

from functools import partial
from statistics import median

import torch
from torch import Tensor

from benchmarks.kernels.layers import LLAMA, OPERATIONS, Shape, timed
from thothy_ai.engine.models.layers.adapted import AdapterBank, HostWeights
from thothy_ai.engine.models.layers.linear import linear
from thothy_ai.engine.models.layers.mlp import SwiGLU

Row = tuple[str, ...]
HEADER: Row = ("model", "adapters", "tokens", "layer, us", "with adapters, us", "more")
TOKENS = (1, 16, 64, 256, 512, 1280, 4096)
ADAPTERS = (8, 64)
RANK = 16
TURNS = 5


class Layer:
    """A layer without attention and norms, as many adapters as given, and what to multiply."""

    def __init__(self, shape: Shape, adapters: int, tokens: int) -> None:
        heads = [shape.heads * shape.dim, shape.kv_heads * shape.dim, shape.kv_heads * shape.dim]
        parts = {"qkv": heads, "output": [shape.hidden], "gate_up": [shape.inner] * 2, "down": [shape.hidden]}
        self._bank = AdapterBank(OPERATIONS)
        layers, inputs_of = {}, {}
        for name, (outputs, inputs) in shape.matmuls.items():
            modules = {f"{name}.{part}": rows for part, rows in enumerate(parts[name])}
            layer = linear(torch.randn(outputs, inputs, dtype=torch.bfloat16, device="cuda"))
            inputs_of[name] = torch.randn(tokens, inputs, dtype=torch.bfloat16, device="cuda")
            layers[name] = self._bank.wrapped(layer, modules, inputs, {})
        self._attention = [(layers[name], inputs_of[name]) for name in ("qkv", "output")]
        self._mlp, self._hidden = SwiGLU(layers["gate_up"], layers["down"]), inputs_of["gate_up"]
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
        return [*(layer(x) for layer, x in self._attention), self._mlp(self._hidden, OPERATIONS)]


def measure() -> list[Row]:
    """Decode steps and a prompt, in CUDA graphs, with adapters and without in turn, since the device's clock changes. A
    step sorts its tokens once for all layers, which is not counted.
    """
    rows = []
    for adapters in ADAPTERS:
        for tokens in TOKENS:
            layer = Layer(LLAMA, adapters, tokens)
            turns = [[timed([partial(layer.run, adapted=on)]) for on in (False, True)] for _ in range(TURNS)]
            plain, adapted = (1e3 * median(times) for times in zip(*turns, strict=True))
            figures = f"{plain:.1f}", f"{adapted:.1f}", f"{adapted / plain - 1:.1%}"
            rows.append((LLAMA.name, f"{adapters}", f"{tokens:,}", *figures))
    return rows
