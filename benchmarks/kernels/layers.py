"""The layer operations: time and bandwidth; and the matmuls between them, in bf16 and fp8."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import cycle

import torch
import triton.testing
from torch import Tensor

from thothy_ai.engine.models.layers.linear import Fp8Linear, linear
from thothy_ai.kernels.fp8 import FP8, BlockQuantized
from thothy_ai.kernels.paged import LayerCache
from thothy_ai.kernels.rotary import QKNorm, rotary_table
from thothy_ai.kernels.step import StepColumns
from thothy_ai.kernels.triton.matmul import cublas_matmul
from thothy_ai.kernels.triton.operations import TritonOperations
from thothy_ai.kernels.triton.skinny_matmul_tiles import suited
from thothy_ai.kernels.triton.sms import SMs

Row = tuple[str, ...]
HEADER: Row = ("operation", "model", "tokens", "us", "GB/s", "TFLOP/s")
TOKENS = (64, 512, 2048, 8192)
MATMUL_ROWS = (1, 16, 32, 64, 96, 128, 160, 512, 2048, 8192)
SAMPLE = 5  # milliseconds; the median of ten counts
CONTEXT, BLOCK = 4096, 16
FP8_BLOCK = 128  # outputs and inputs that share a scale
LARGER_THAN_L2 = 128 << 20
OPERATIONS = TritonOperations()


@dataclass(frozen=True)
class Shape:
    """Sizes of a model's layer."""

    name: str
    hidden: int
    inner: int
    heads: int
    normed: bool
    kv_heads: int = 8
    dim: int = 128

    @property
    def matmuls(self) -> dict[str, tuple[int, int]]:
        """(outputs, inputs) of the matmuls."""
        queries = self.heads * self.dim
        return {
            "qkv": (queries + 2 * self.kv_heads * self.dim, self.hidden),
            "output": (self.hidden, queries),
            "gate_up": (2 * self.inner, self.hidden),
            "down": (self.hidden, self.inner),
        }


LLAMA = Shape("llama-8b", 4096, 14336, 32, normed=False)
QWEN = Shape("qwen3-0.6b", 1024, 3072, 16, normed=True)


Call = Callable[[], object]


@dataclass(frozen=True)
class Operation:
    """An operation and the bytes that it must move. `make` draws new inputs and returns a call over them."""

    name: str
    bytes: int
    make: Callable[[], Call]

    def row(self, shape: Shape, tokens: int) -> Row:
        """Measured over so many inputs that the L2 cache holds none when it is used again."""
        milliseconds = timed([self.make() for _ in range(min(1000, copies(self.bytes)))])
        bandwidth = self.bytes / milliseconds / 1e6
        return (self.name, shape.name, str(tokens), f"{milliseconds * 1e3:.1f}", f"{bandwidth:.0f}", "-")


def measure() -> list[Row]:
    """All operations, then the matmuls."""
    rows = [
        each.row(shape, tokens) for shape in (LLAMA, QWEN) for tokens in TOKENS for each in operations(shape, tokens)
    ]
    return rows + [row for name, sizes in LLAMA.matmuls.items() for row in matmul_rows(LLAMA, name, *sizes)]


def timed(calls: Iterable[Call]) -> float:
    """Milliseconds of a call in a CUDA graph, which cycles through them."""
    turns = cycle(calls)

    def call() -> None:
        next(turns)()

    return float(triton.testing.do_bench_cudagraph(call, rep=SAMPLE, return_mode="median"))


def copies(num_bytes: int) -> int:
    """Of so many bytes each, that the L2 cache holds none when it is used again."""
    return 1 + LARGER_THAN_L2 // num_bytes


def operations(shape: Shape, tokens: int) -> list[Operation]:
    hidden, inner = tokens * shape.hidden, tokens * shape.inner
    heads, pairs = tokens * shape.heads * shape.dim, 2 * tokens * shape.kv_heads * shape.dim
    return [
        Operation("add_rms_norm", 8 * hidden, lambda: _norm(OPERATIONS.add_rms_norm, shape, tokens)),
        Operation("add_rms_norm_fp8", 7 * hidden, lambda: _norm(OPERATIONS.add_rms_norm_fp8, shape, tokens)),
        Operation("quantize_fp8", 3 * hidden, lambda: partial(OPERATIONS.quantize_fp8, _normal(tokens, shape.hidden))),
        Operation(
            "quantize_fp8_groups",
            3 * hidden,
            lambda: partial(OPERATIONS.quantize_fp8_groups, _normal(tokens, shape.hidden), FP8_BLOCK),
        ),
        Operation("silu_mul", 6 * inner, lambda: partial(OPERATIONS.silu_mul, _normal(tokens, 2 * shape.inner))),
        Operation(
            "silu_mul_fp8", 5 * inner, lambda: partial(OPERATIONS.silu_mul_fp8, _normal(tokens, 2 * shape.inner))
        ),
        Operation("rotate_and_cache", 4 * (heads + pairs), lambda: _rotation(shape, tokens, torch.bfloat16)),
        Operation("rotate_and_cache, fp8 KV", 4 * heads + 3 * pairs, lambda: _rotation(shape, tokens, FP8)),
        Operation("step_tokens", 28 * tokens, partial(_step_tokens, tokens)),
    ]


def matmul_rows(shape: Shape, name: str, outputs: int, inputs: int) -> Iterator[Row]:
    """In bf16, in fp8 by row and in blocks, and cuBLAS' fp8 where another kernel takes its place.

    GB/s are those of the weight.
    """
    weights = [_normal(outputs, inputs) for _ in range(copies(outputs * inputs))]
    plain, mixed = [linear(weight) for weight in weights], [_fp8(weight) for weight in weights]
    quantized = [OPERATIONS.quantize_fp8(weight) for weight in weights]
    blocks = [OPERATIONS.block_matmul(_in_blocks(weight), None, weight.dtype) for weight in weights]
    sms = SMs.of(weights[0].device)
    for tokens in MATMUL_ROWS:
        x = _normal(tokens, inputs)
        rows, groups = OPERATIONS.quantize_fp8(x), OPERATIONS.quantize_fp8_groups(x, FP8_BLOCK)
        kinds = {
            "bf16": (2, [partial(layer, x) for layer in plain]),
            "fp8": (1, [partial(layer, rows) for layer in mixed]),
            "fp8 in blocks": (1, [partial(matmul, groups) for matmul in blocks]),
        }
        if suited(tokens, outputs, sms) is not None:
            kinds["cuBLAS fp8"] = (1, [partial(cublas_matmul, rows, weight, None, x.dtype) for weight in quantized])
        for kind, (size, calls) in kinds.items():
            milliseconds = timed(calls)
            bandwidth = size * outputs * inputs / milliseconds / 1e6
            speed = 2 * tokens * outputs * inputs / milliseconds / 1e9
            figures = (f"{milliseconds * 1e3:.1f}", f"{bandwidth:.0f}", f"{speed:.0f}")
            yield (f"{name}, {kind}", shape.name, str(tokens), *figures)


def _fp8(weight: Tensor) -> Fp8Linear:
    return Fp8Linear(OPERATIONS.quantize_fp8(weight), None, weight.dtype, OPERATIONS)


def _in_blocks(weight: Tensor) -> BlockQuantized:
    """With scales for its values by row, as good as any others."""
    outputs, inputs = weight.shape
    scales = torch.rand(-(-outputs // FP8_BLOCK), -(-inputs // FP8_BLOCK), device="cuda")
    return BlockQuantized(OPERATIONS.quantize_fp8(weight).values, scales, FP8_BLOCK, FP8_BLOCK)


def _norm(operation: Callable[..., object], shape: Shape, tokens: int) -> Call:
    return partial(operation, *_normal(2, tokens, shape.hidden), _normal(shape.hidden), 1e-5)


def _rotation(shape: Shape, tokens: int, dtype: torch.dtype) -> Call:
    cuda = torch.device("cuda")
    qkv = _normal(tokens, shape.heads + 2 * shape.kv_heads, shape.dim)
    norms = QKNorm(_normal(shape.dim), _normal(shape.dim)) if shape.normed else None
    table = rotary_table([10000.0 ** (-2 * i / shape.dim) for i in range(shape.dim // 2)], 1.0, CONTEXT, cuda)
    positions = torch.randint(CONTEXT, (tokens,), device=cuda)
    slots = torch.randperm(2 * tokens, device=cuda)[:tokens]
    cache = _cache(2 * tokens // BLOCK, shape, dtype)
    return lambda: OPERATIONS.rotate_and_cache(qkv, norms, 1e-6, table, positions, slots, cache, shape.heads)


def _cache(blocks: int, shape: Shape, dtype: torch.dtype) -> LayerCache:
    size = (blocks, BLOCK, shape.kv_heads)
    keys, values = (torch.empty(*size, shape.dim, dtype=dtype, device="cuda") for _ in range(2))
    return LayerCache(keys, values, *(torch.empty(size, device="cuda") for _ in range(2 if dtype == FP8 else 0)))


@cache
def _step_tokens(tokens: int) -> Call:
    """One half of the tokens decodes, the other half is one sequence's prefill."""
    count = tokens // 2 + 1
    counts = torch.tensor([1] * (tokens - count) + [count], dtype=torch.int32)
    begins = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(torch.int32)
    rows = torch.arange(len(counts), dtype=torch.int32)
    first = torch.zeros_like(rows)
    columns = StepColumns(*(each.cuda() for each in (rows, first, first, counts, begins)))
    token_ids, tables = (
        torch.zeros(len(counts), width, dtype=torch.int32, device="cuda") for width in (count, count // BLOCK + 1)
    )
    return lambda: OPERATIONS.step_tokens(token_ids, tables[:, None], columns, tokens, BLOCK)


def _normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.bfloat16, device="cuda")
