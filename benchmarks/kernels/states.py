"""Gated delta nets: decode's bandwidth over the states, prefill against the matrix multiplications of its layer, and
steps that do both.

`python -m benchmarks.kernels states`. Shapes are those of Qwen3.5's layers in bfloat16, with states in float32 and in
bfloat16. All in CUDA graphs: a call's launches take longer than a step of few rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

import torch
import triton.testing
from torch import Tensor

from thothy_ai.kernels.paged import AttentionBatch
from thothy_ai.kernels.states import Convolution, DeltaGates
from thothy_ai.kernels.triton.states import convolve, gated_delta, gated_rms_norm

Row = tuple[str, ...]
HEADER: Row = ("shape", "step", "what", "us", "GB/s", "of its layer's GEMMs")
ROWS = (1, 16, 64, 128, 256, 512)
PROMPTS = ((8192,), (1280,), (2048,) * 4, (256,) * 32)
BOTH = ((256, (1024,)), (512, (192,) * 4))  # rows that decode, and prompts in the same step
SAMPLE = 50  # milliseconds
LARGER_THAN_L2 = 256 << 20
WIDTH = 4
CUDA = torch.device("cuda")


@dataclass(frozen=True)
class Layer:
    """Sizes of one delta net, and of the hidden states around it."""

    name: str
    hidden: int
    key_heads: int = 16
    heads: int = 32
    size: int = 128

    @property
    def mixed(self) -> int:
        """Channels of the convolution."""
        return (2 * self.key_heads + self.heads) * self.size

    def projected(self, tokens: int) -> Tensor:
        """What the merged projection gives: inputs of the convolution, gates of results, and those of the rule."""
        outputs = self.mixed + self.heads * (self.size + 2)
        return torch.randn(tokens, outputs, device=CUDA, dtype=torch.bfloat16)

    def states(self, slots: int, dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
        """Inputs and memory, enough of them that the L2 holds none when it is used again."""
        memory = (slots, self.heads, self.size, self.size)
        copies = 2 + LARGER_THAN_L2 // (slots * self.heads * self.size**2 * dtype.itemsize)
        return [
            (
                torch.zeros(slots, WIDTH - 1, self.mixed, device=CUDA, dtype=torch.bfloat16),
                torch.randn(memory, device=CUDA).to(dtype),
            )
            for _ in range(copies)
        ]


LAYERS = (Layer("qwen3.5-35b-a3b", 2048), Layer("qwen3.5-0.8b", 1024, 16, 16))


def measure() -> list[Row]:
    return [row for layer in LAYERS for row in (*_decode(layer), *_prefill(layer), *_both(layer))]


def _decode(layer: Layer) -> list[Row]:
    made = []
    for rows in ROWS:
        for dtype in (torch.float32, torch.bfloat16):
            batch = _batch([1] * rows, start=100)
            states = cycle(layer.states(rows, dtype))
            parts = _parts(layer, rows)
            us = _us(lambda: parts.delta(next(states)[1], batch))  # noqa: B023  called before the next turn
            size = 2 * rows * layer.heads * layer.size**2 * dtype.itemsize
            name = str(dtype).removeprefix("torch.")
            made.append(
                (layer.name, f"{rows} rows", f"delta, states in {name}", f"{us:.1f}", f"{size / us / 1e3:.0f}", "")
            )
        us = _us(lambda: parts.around(next(states)[0], batch))  # noqa: B023
        made.append((layer.name, f"{rows} rows", "convolution and norm", f"{us:.1f}", "", ""))
    return made


def _prefill(layer: Layer) -> list[Row]:
    made = []
    for prompts in PROMPTS:
        tokens, batch = sum(prompts), _batch(prompts, start=0)
        x = torch.randn(tokens, layer.hidden, device=CUDA, dtype=torch.bfloat16)
        parts, states = _parts(layer, tokens), cycle(layer.states(len(prompts), torch.float32))
        into = torch.randn(parts.projected.shape[1], layer.hidden, device=CUDA, dtype=torch.bfloat16)
        out = torch.randn(layer.hidden, layer.heads * layer.size, device=CUDA, dtype=torch.bfloat16)
        wide = torch.randn(tokens, layer.heads * layer.size, device=CUDA, dtype=torch.bfloat16)
        gemms = _us(lambda: (x @ into.T, wide @ out.T))  # noqa: B023
        scan = _us(lambda: parts.delta(next(states)[1], batch))  # noqa: B023
        around = _us(lambda: parts.around(next(states)[0], batch))  # noqa: B023
        step = f"{len(prompts)} x {prompts[0]} tokens"
        made += [
            (layer.name, step, "projections (bfloat16)", f"{gemms:.0f}", "", "100%"),
            (layer.name, step, "chunked scan", f"{scan:.0f}", "", f"{scan / gemms:.0%}"),
            (layer.name, step, "convolution and norm", f"{around:.0f}", "", f"{around / gemms:.0%}"),
        ]
    return made


def _both(layer: Layer) -> list[Row]:
    """A step's rows that decode, its prompts, and both."""
    made = []
    for rows, prompts in BOTH:
        times = []
        for counts in ([1] * rows, prompts, [1] * rows + [*prompts]):
            parts, batch = _parts(layer, sum(counts)), _batch(counts, start=100)
            states = cycle(layer.states(len(counts), torch.bfloat16))
            times.append(_us(lambda: parts.delta(next(states)[1], batch)))  # noqa: B023
        step = f"{rows} rows and {len(prompts)} x {prompts[0]} tokens"
        made.append((layer.name, step, "rows; prompts; both", "; ".join(f"{us:.0f}" for us in times), "", ""))
    return made


@dataclass(frozen=True)
class _Parts:
    """One layer's kernels over given activations."""

    layer: Layer
    projected: Tensor
    weight: Tensor
    gates: DeltaGates
    read: Tensor

    def delta(self, memory: Tensor, batch: AttentionBatch) -> Tensor:
        inputs, _, learned, forgotten = self._split()
        return gated_delta(inputs, learned, forgotten, self.gates, memory, batch)

    def around(self, inputs: Tensor, batch: AttentionBatch) -> Tensor:
        given, gate, _, _ = self._split()
        convolve(given, Convolution(self.weight), inputs, batch)
        return gated_rms_norm(self.read, gate, self.weight[: self.layer.size, 0], 1e-6)

    def _split(self) -> tuple[Tensor, ...]:
        layer = self.layer
        return self.projected.split((layer.mixed, layer.heads * layer.size, layer.heads, layer.heads), dim=1)


def _parts(layer: Layer, tokens: int) -> _Parts:
    gates = DeltaGates(-torch.rand(layer.heads, device=CUDA), torch.ones(layer.heads, device=CUDA))
    weight = torch.randn(WIDTH, layer.mixed, device=CUDA, dtype=torch.bfloat16).t()
    read = torch.randn(tokens, layer.heads, layer.size, device=CUDA)
    return _Parts(layer, layer.projected(tokens), weight, gates, read)


def _batch(counts: list[int] | tuple[int, ...], start: int) -> AttentionBatch:
    """Rows with so many tokens each, from this position on."""

    def column(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=CUDA)

    begins = [sum(counts[:place]) for place in range(len(counts) + 1)]
    ends, nothing = [start + count for count in counts], column([0] * len(counts))
    return AttentionBatch(
        (nothing[:, None],), column([*range(len(counts))]), column(ends), column(begins), nothing, nothing,
        list(counts).count(1), tuple(counts), tuple(ends),
    )  # fmt: skip


def _us(run: Callable[[], object]) -> float:
    milliseconds: float = triton.testing.do_bench_cudagraph(run, rep=SAMPLE, return_mode="median")
    return 1000 * milliseconds
