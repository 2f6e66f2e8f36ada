"""Matmuls of quantized checkpoints on a layer of llama-8b: int4 weights with groups, and int8, each against bf16."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.kernels.layers import LLAMA, OPERATIONS, copies, timed
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.grouped import GroupedInts
from thothy_ai.kernels.reference.grouped import packed

Row = tuple[str, ...]
HEADER: Row = ("matmul", "rows", "us", "bf16 us", "speed against bf16")
ROWS = (1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
OTHERS = (16, 4096)  # rows that forms beside the first one are measured with
FORMS = {  # group, zero points
    "int4, groups of 128": (128, False),
    "int4, groups of 128, zero points": (128, True),
    "int4, groups of 32": (32, False),
    "int4, groups of 32, zero points": (32, True),
}


def measure() -> list[Row]:
    """Each matmul of the layer, and all four."""
    return [row for rows in ROWS for row in _rows(rows)]


def _rows(rows: int) -> Iterator[Row]:
    total: dict[str, list[tuple[float, float]]] = {}
    for name, (outputs, inputs) in LLAMA.matmuls.items():
        x = torch.randn(rows, inputs, dtype=torch.bfloat16, device="cuda")
        weights = [
            torch.randn(outputs, inputs, dtype=torch.bfloat16, device="cuda") for _ in range(copies(outputs * inputs))
        ]
        plain = timed([partial(functional.linear, x, weight) for weight in weights])
        del weights
        for form, milliseconds in _forms(x, outputs, rows):
            total.setdefault(form, []).append((milliseconds, plain))
            yield _row(f"{name}, {form}", rows, milliseconds, plain)
    for form, times in total.items():
        yield _row(f"all four, {form}", rows, *map(sum, zip(*times, strict=True)))


def _plain(x: Tensor, outputs: int) -> float:
    shape = (outputs, x.shape[1])
    weights = [torch.randn(shape, dtype=x.dtype, device=x.device) for _ in range(copies(outputs * x.shape[1]))]
    return timed([partial(functional.linear, x, weight) for weight in weights])


def _forms(x: Tensor, outputs: int, rows: int) -> Iterator[tuple[str, float]]:
    inputs = x.shape[1]
    for form, (group, zeros) in list(FORMS.items())[: None if rows in OTHERS else 1]:
        ints = [_random(outputs, inputs, group, zeros=zeros) for _ in range(copies(outputs * inputs // 2))]
        yield form, timed([partial(OPERATIONS.grouped_matmul(weight, None), x) for weight in ints])
        del ints
    quantized = OPERATIONS.quantize_int8(x)
    int8 = [_random_int8(outputs, inputs) for _ in range(copies(outputs * inputs))]
    yield "int8", timed([partial(OPERATIONS.int8_matmul(weight, None, x.dtype), quantized) for weight in int8])


def _random(outputs: int, inputs: int, group: int, *, zeros: bool) -> GroupedInts:
    numbers = torch.randint(16, (outputs, inputs), dtype=torch.uint8, device="cuda")
    scales = torch.rand(inputs // group, outputs, device="cuda").half()
    points = torch.randint(16, scales.shape, dtype=torch.uint8, device="cuda") if zeros else None
    return packed(numbers, scales, points, 4, group)


def _random_int8(outputs: int, inputs: int) -> Quantized:
    values = torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8, device="cuda")
    return Quantized(values, torch.rand(outputs, 1, device="cuda"))


def _row(name: str, rows: int, milliseconds: float, plain: float) -> Row:
    return name, str(rows), f"{milliseconds * 1e3:.1f}", f"{plain * 1e3:.1f}", f"{plain / milliseconds:.2f}"
