"""Mixtures of experts: time, bandwidth and TFLOP/s of a layer of qwen3-30b-a3b, by format and tokens.

Run as a module, it tries other tiles, too: each is checked against plain torch first.

    FORMATS=fp8 SHAPE=qwen3.5-35b-a3b python -m benchmarks.kernels.experts
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import torch
import triton.testing
from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.experts import GATE_ROWS, SILU, ExpertMatrix, ExpertWeights, Mxfp4, Routed, Routing
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.reference.experts import activated
from thothy_ai.kernels.reference.mxfp4 import dequantize_mxfp4
from thothy_ai.kernels.reference.quantize import dequantize
from thothy_ai.kernels.triton.experts.down import down
from thothy_ai.kernels.triton.experts.experts import Experts, add_up
from thothy_ai.kernels.triton.experts.gate_up import gate_up
from thothy_ai.kernels.triton.experts.operands import Operand
from thothy_ai.kernels.triton.experts.router import route
from thothy_ai.kernels.triton.experts.sort import sort_by_expert
from thothy_ai.kernels.triton.experts.tiles import ExpertTile, form_of, shared_memory, suited
from thothy_ai.kernels.triton.quantize import quantize_fp8


@dataclass(frozen=True)
class Sizes:
    """Of a layer. With `shared`, the last expert gets all tokens."""

    experts: int
    top_k: int
    hidden: int
    inner: int
    shared: bool = False

    def route(self, tokens: int) -> Routed:
        """What a router chooses nearly evenly among the experts for random tokens."""
        router = normal(self.experts - self.shared + GATE_ROWS * self.shared, self.hidden)
        chosen = Routing(min(self.top_k, self.experts) - self.shared, shared=self.shared)
        return route(normal(tokens, self.hidden), router, None, None, chosen)


SHAPES = {
    "qwen3-30b-a3b": Sizes(128, 8, 2048, 768),
    "qwen3.5-35b-a3b": Sizes(257, 9, 2048, 512, shared=True),
}
PLAIN = SHAPES["qwen3-30b-a3b"]
FORMATS = ("bf16", "fp8", "mxfp4")
TOKENS = (16, 64, 256, 640, 1536, 4096)
SAMPLE = 5  # milliseconds; the median of ten counts
COMPILERS = 14  # processes
TILES = [
    ExpertTile(16, 64, 128, 3, 4, weights_first=True),
    ExpertTile(16, 64, 256, 3, 4, weights_first=True),
    ExpertTile(32, 64, 128, 3, 4, weights_first=True),
    ExpertTile(32, 64, 64, 5, 4, weights_first=True),
    ExpertTile(64, 32, 128, 4, 4, weights_first=True),
    ExpertTile(64, 64, 64, 4, 4, weights_first=True),
    ExpertTile(64, 64, 128, 2, 4, weights_first=True),
    ExpertTile(64, 64, 128, 3, 4, weights_first=True),
    ExpertTile(64, 64, 128, 4, 4, weights_first=True),
    ExpertTile(64, 64, 64, 4, 4),
    ExpertTile(64, 128, 64, 3, 4),
    ExpertTile(64, 128, 128, 3, 4),
    ExpertTile(128, 64, 64, 3, 4, short=64),
    ExpertTile(128, 64, 128, 3, 4, short=64),
    ExpertTile(128, 128, 64, 4, 8),
    ExpertTile(128, 128, 64, 4, 8, short=64),
    ExpertTile(128, 128, 64, 3, 8, short=64),
    ExpertTile(128, 128, 128, 3, 8, short=64),
    ExpertTile(128, 64, 64, 3, 4, weights_first=True),
]
OF_DOWN = [  # twice as many outputs as gate and up have registers for
    ExpertTile(64, 128, 128, 4, 4),
    ExpertTile(64, 128, 256, 2, 4),
    ExpertTile(64, 256, 128, 2, 8),
    ExpertTile(128, 128, 64, 3, 4, short=64),
    ExpertTile(128, 128, 128, 3, 4, short=64),
    ExpertTile(128, 256, 64, 3, 8, short=64),
    ExpertTile(128, 256, 64, 4, 8, short=64),
    ExpertTile(128, 256, 128, 3, 8, short=64),
]
SUITING = {64: (16,), 256: (32, 64), 640: (32, 64), 1152: (32, 64, 128), 1792: (64, 128), 4096: (64, 128)}

Row = tuple[str, ...]
HEADER: Row = ("matmul", "format", "tokens", "tile", "us", "GB/s", "TFLOP/s", "of dense")
Call = Callable[[], object]


@dataclass
class Layer:
    """A layer's experts and the tokens of a step, whose router chooses among them nearly evenly."""

    kind: str
    tokens: int
    sizes: Sizes = PLAIN

    def __post_init__(self) -> None:
        torch.manual_seed(self.tokens)
        experts, hidden, inner = self.sizes.experts, self.sizes.hidden, self.sizes.inner
        first, second = (matrix(self.kind, experts, *each) for each in ((2 * inner, hidden), (hidden, inner)))
        self.weights = ExpertWeights(first, second)
        self.made = Experts(self.weights, SILU)
        self.first, self.second = Operand.of(first, 2), Operand.of(second, 1)
        self.set_tokens(self.tokens)

    def set_tokens(self, tokens: int) -> None:
        self.tokens = tokens
        self.x = normal(tokens, self.sizes.hidden)
        self.ids, self.shares = self.sizes.route(tokens)
        self.rows = quantize_fp8(self.x) if self.first.quantizes else self.x
        inner = normal(self.ids.numel(), self.sizes.inner)
        self.between = quantize_fp8(inner) if self.first.quantizes else inner
        self.hit = len(self.ids.unique())

    def calls(self, tile: ExpertTile) -> dict[str, Callable[[], Tensor]]:
        by_expert = sort_by_expert(self.ids, self.sizes.experts, tile.tokens)
        nan = partial(torch.full, fill_value=torch.nan, dtype=torch.bfloat16, device="cuda")
        first, second = (nan((self.ids.numel(), columns)) for columns in (self.sizes.inner, self.sizes.hidden))
        return {
            "gate_up": partial(gate_up, self.rows, self.first, None, SILU, by_expert, tile, first),
            "down": partial(down, self.between, self.second, None, self.shares, by_expert, tile, second),
        }

    def bytes_of(self, name: str) -> float:
        """Of the weights that are read."""
        whole = self.weights.gate_up if name == "gate_up" else self.weights.down
        parts = (whole,) if isinstance(whole, Tensor) else whole
        return sum(part.nbytes for part in parts) * self.hit / self.sizes.experts

    def flops_of(self, name: str) -> float:
        return 2 * self.ids.numel() * self.sizes.hidden * self.sizes.inner * (2 if name == "gate_up" else 1)


def matrix(kind: str, experts: int, outputs: int, inputs: int) -> ExpertMatrix:
    if kind == "mxfp4":
        blocks, scales = (
            torch.randint(*bounds, (experts, outputs, inputs // share), dtype=torch.uint8, device="cuda")
            for bounds, share in (((0, 256), 2), ((118, 122), 32))
        )
        return Mxfp4(blocks, scales)
    plain = torch.stack([normal(outputs, inputs) / inputs**0.5 for _ in range(experts)])
    if kind == "bf16":
        return plain
    packed = quantize_fp8(plain.flatten(0, 1))
    return Quantized(packed.values.view(plain.shape), packed.scales.view(experts, outputs, 1))


def measure() -> list[Row]:
    """The tiles that the engine uses, and what surrounds the matmuls."""
    return [row for kind in FORMATS for row in layer_rows(kind)]


def layer_rows(kind: str) -> Iterator[Row]:
    layer, dense = Layer(kind, TOKENS[0]), dense_rates(kind, PLAIN)
    for tokens in TOKENS:
        layer.set_tokens(tokens)
        dtype = (layer.rows if isinstance(layer.rows, Tensor) else layer.rows.values).dtype
        form = form_of(dtype, mxfp4=layer.first.mxfp4)
        tiles = suited(tokens * PLAIN.top_k / PLAIN.experts, form, dtype.itemsize, shared_memory(layer.x.device))
        for name, tile in tiles._asdict().items():
            yield figures(layer, name, tile, timed(layer.calls(tile)[name]), dense)
        whole = timed(partial(layer.made, layer.x, layer.ids, layer.shares))
        yield from (("whole layer", kind, str(tokens), "-", f"{whole * 1e3:.1f}", "-", "-", "-"),)


def dense_rates(kind: str, sizes: Sizes) -> dict[str, float]:
    """TFLOP/s of cuBLAS over as many rows as 4,096 tokens make, one weight for all; MXFP4 beside bf16."""
    rows, rates = 4096 * sizes.top_k, {}
    for name, outputs, inputs in (("gate_up", 2 * sizes.inner, sizes.hidden), ("down", sizes.hidden, sizes.inner)):
        x, weight = normal(rows, inputs), normal(outputs, inputs)
        call: Call = partial(functional.linear, x, weight)
        if kind == "fp8":
            (a, a_scales), (b, b_scales) = quantize_fp8(x), quantize_fp8(weight)
            call = partial(
                torch._scaled_mm, a, b.t(), a_scales, b_scales.t(), out_dtype=torch.bfloat16, use_fast_accum=True
            )
        rates[name] = 2 * rows * outputs * inputs / timed(call) / 1e9
    return rates


def timed(call: Call) -> float:
    """Milliseconds in a CUDA graph."""
    return float(triton.testing.do_bench_cudagraph(call, rep=SAMPLE, return_mode="median"))


def figures(layer: Layer, name: str, tile: ExpertTile, milliseconds: float, dense: dict[str, float]) -> Row:
    rate = layer.flops_of(name) / milliseconds / 1e9
    bandwidth = layer.bytes_of(name) / milliseconds / 1e6
    kind = " w" * tile.weights_first + f" short {tile.short}" * bool(tile.short)
    cut = f"{tile.tokens} {tile.outputs} {tile.step} {tile.stages} {tile.warps}{kind}"
    measured = (f"{milliseconds * 1e3:.1f}", f"{bandwidth:.0f}", f"{rate:.0f}", f"{rate / dense[name]:.0%}")
    return (name, layer.kind, str(layer.tokens), cut, *measured)


def sweep(formats: tuple[str, ...], sizes: Sizes) -> Iterator[Row]:
    """Every tile that compiles and computes what it must, for the numbers of tokens that it suits."""
    for kind in formats:
        layer, dense = Layer(kind, TOKENS[0], sizes), dense_rates(kind, sizes)
        for tokens, suiting in SUITING.items():
            layer.set_tokens(tokens)
            wanted = {name: expected(layer, name) for name in ("gate_up", "down")}
            for tile in (each for each in TILES + OF_DOWN if each.tokens in suiting):
                for name, call in layer.calls(tile).items():
                    if name == "down" or tile in TILES:
                        yield tried(layer, name, tile, call, wanted[name], dense)


def tried(
    layer: Layer, name: str, tile: ExpertTile, call: Callable[[], Tensor], wanted: Tensor, dense: dict[str, float]
) -> Row:
    try:
        got = call().clone()
        if name == "gate_up":  # in sorted order
            got = torch.empty_like(got).index_copy_(
                0, sort_by_expert(layer.ids, layer.sizes.experts, 16).order.long(), got
            )
        apart = float((got.float() - wanted).norm() / wanted.norm())
        same = torch.equal(call(), call())
        row = figures(layer, name, tile, timed(call), dense)
    except Exception as error:  # noqa: BLE001  a tile that does not fit the GPU is a result, too
        return (name, layer.kind, str(layer.tokens), str(tuple(tile)), f"{type(error).__name__} {error}"[:60], "0")
    return (*row, "" if apart < 0.02 and same else f"WRONG {apart:.4f} {same}")


def expected(layer: Layer, name: str) -> Tensor:
    """float32 [T * k, N], by assignment; `between` lies in sorted order."""
    flat, order = layer.ids.flatten(), sort_by_expert(layer.ids, layer.sizes.experts, 16).order.long()
    out = torch.empty(len(flat), layer.sizes.inner if name == "gate_up" else layer.sizes.hidden, device="cuda")
    place = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device="cuda"))
    for expert in flat.unique().tolist():
        chosen = (flat == expert).nonzero().flatten()
        if name == "gate_up":
            out[chosen] = activated(
                wide(layer.rows, chosen // layer.ids.shape[1]) @ of(layer.weights.gate_up, expert), SILU
            )
        else:
            out[chosen] = wide(layer.between, place[chosen]) @ of(layer.weights.down, expert)
    return out if name == "gate_up" else out * layer.shares.flatten()[:, None]


def wide(rows: Tensor | Quantized, index: Tensor) -> Tensor:
    if isinstance(rows, Tensor):
        return rows[index].float()
    return dequantize(Quantized(rows.values[index], rows.scales[index]))


def of(matrix: ExpertMatrix, expert: int) -> Tensor:
    """float32 [K, N]."""
    if isinstance(matrix, Tensor):
        return matrix[expert].float().t()
    if isinstance(matrix, Quantized):
        return dequantize(Quantized(matrix.values[expert], matrix.scales[expert])).t()
    return dequantize_mxfp4(Mxfp4(matrix.blocks[expert], matrix.scales[expert])).t()


def surroundings(sizes: Sizes) -> Iterator[Row]:
    """What a layer runs beside its matmuls."""
    for tokens in TOKENS:
        ids, _ = sizes.route(tokens)
        made, inner = normal(ids.numel(), sizes.hidden), normal(ids.numel(), sizes.inner)
        calls: dict[str, Call] = {
            "router, with its inputs drawn": partial(sizes.route, tokens),
            "sort": partial(sort_by_expert, ids, sizes.experts, 64),
            "add_up": partial(add_up, made, sizes.top_k),
            "quantize inner": partial(quantize_fp8, inner),
        }
        yield from ((name, "-", str(tokens), "-", f"{timed(call) * 1e3:.1f}") for name, call in calls.items())


def compiled(work: tuple[str, ExpertTile, Sizes]) -> None:
    """Compile one tile's kernels into Triton's cache."""
    kind, tile, sizes = work
    try:
        few = replace(sizes, experts=2 * sizes.top_k)
        for name, call in Layer(kind, 32, few).calls(tile).items():
            if name == "down" or tile in TILES:
                call()
    except Exception:  # noqa: BLE001  the sweep says so
        return


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.bfloat16, device="cuda")


def main() -> None:
    formats = tuple(os.environ.get("FORMATS", ",".join(FORMATS)).split(","))
    sizes = SHAPES[os.environ.get("SHAPE", "qwen3-30b-a3b")]
    started = time.perf_counter()
    with ProcessPoolExecutor(COMPILERS, multiprocessing.get_context("fork")) as pool:  # before there is a CUDA context
        list(pool.map(compiled, [(kind, tile, sizes) for tile in reversed(TILES + OF_DOWN) for kind in formats]))
    print(f"compiled in {time.perf_counter() - started:.0f} s", flush=True)
    for row in chain(surroundings(sizes), sweep(formats, sizes)):
        print(*row, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
