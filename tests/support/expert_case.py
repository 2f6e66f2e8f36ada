"""Mixtures of experts to compute, and what comes out of them by formula, in float64."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tests.support.layer_checks import normal
from thothy_ai.kernels.experts import ExpertActivation, ExpertMatrix, ExpertWeights, Mxfp4, SquaredReLU
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.reference.mxfp4 import dequantize_mxfp4
from thothy_ai.kernels.reference.quantize import dequantize, quantize_fp8

CPU = torch.device("cpu")
FORMATS = ("plain", "fp8", "mxfp4")


@dataclass(frozen=True)
class ExpertCase:
    """Tokens x [T, K], the experts [T, k] of each, and their weights."""

    x: Tensor
    ids: Tensor
    shares: Tensor
    weights: ExpertWeights

    def wanted(self, activation: ExpertActivation) -> Tensor:
        """[T, K] float64."""
        out = torch.zeros(self.x.shape, dtype=torch.float64)
        for token, (experts, shares) in enumerate(zip(self.ids.tolist(), self.shares.tolist(), strict=True)):
            for expert, share in zip(experts, shares, strict=True):
                out[token] += share * self._one(self.x[token].cpu().double(), expert, activation)
        return out

    def _one(self, x: Tensor, expert: int, activation: ExpertActivation) -> Tensor:
        weights = self.weights
        rows = wide(weights.gate_up, expert) @ x + bias_of(weights.gate_up_bias, expert)
        if isinstance(activation, SquaredReLU):
            return wide(weights.down, expert) @ rows.relu().square() + bias_of(weights.down_bias, expert)
        gate, up = rows.chunk(2)
        if activation.limit is not None:
            gate, up = gate.clamp(max=activation.limit), up.clamp(-activation.limit, activation.limit)
        opened = activation.alpha * (gate + activation.cubic * gate**3)
        inner = gate / (1 + (-opened).exp()) * (up + activation.offset)
        return wide(weights.down, expert) @ inner + bias_of(weights.down_bias, expert)


def make_case(
    form: str, tokens: int, *, experts: int = 6, top_k: int = 2, hidden: int = 64, inner: int = 32,
    dtype: torch.dtype = torch.float32, device: torch.device = CPU, biased: bool = False, gated: bool = True,
) -> ExpertCase:  # fmt: skip
    """Random; some experts have many tokens and the last but one has none."""
    generator = torch.Generator().manual_seed(tokens)
    likely = torch.logspace(0, -1, experts)
    likely[-2] = 1e-9
    ids = torch.multinomial(likely.expand(tokens, -1), top_k, generator=generator).int()
    shares, rows = torch.rand(tokens, top_k, generator=generator), 2 * inner if gated else inner
    weights = ExpertWeights(
        matrix(form, experts, rows, hidden, dtype, device),
        matrix(form, experts, hidden, inner, dtype, device),
        normal(experts, rows, seed=3).to(device, dtype) if biased else None,
        normal(experts, hidden, seed=4).to(device, dtype) if biased else None,
    )
    return ExpertCase(normal(tokens, hidden).to(device, dtype), ids.to(device), shares.to(device), weights)


def matrix(form: str, experts: int, rows: int, inputs: int, dtype: torch.dtype, device: torch.device) -> ExpertMatrix:
    """[E, rows, inputs]."""
    if form == "mxfp4":
        generator = torch.Generator().manual_seed(rows)
        blocks, scales = (
            torch.randint(*bounds, (experts, rows, inputs // share), dtype=torch.uint8, generator=generator).to(device)
            for bounds, share in (((0, 256), 2), ((121, 125), 32))
        )
        return Mxfp4(blocks, scales)
    plain = normal(experts, rows, inputs, seed=rows) / inputs**0.5
    return quantize_fp8(plain.to(device)) if form == "fp8" else plain.to(device, dtype)


def wide(matrix: ExpertMatrix, expert: int) -> Tensor:
    """One expert's weight in float64."""
    if isinstance(matrix, Quantized):
        return dequantize(Quantized(matrix.values[expert], matrix.scales[expert])).double().cpu()
    if isinstance(matrix, Mxfp4):
        return dequantize_mxfp4(Mxfp4(matrix.blocks[expert], matrix.scales[expert])).double().cpu()
    return matrix[expert].double().cpu()


def bias_of(bias: Tensor | None, expert: int) -> Tensor | float:
    return 0.0 if bias is None else bias[expert].double().cpu()


def around(case: ExpertCase, margins) -> ExpertCase:
    """The same amid memory that kernels must not touch."""
    parts = (case.weights.gate_up, case.weights.down)
    first, second = (
        margins.around(part) if isinstance(part, Tensor) else type(part)(*map(margins.around, part)) for part in parts
    )
    biases = [
        None if bias is None else margins.around(bias) for bias in (case.weights.gate_up_bias, case.weights.down_bias)
    ]
    return replace(
        case,
        x=margins.around(case.x),
        ids=margins.around(case.ids),
        shares=margins.around(case.shares),
        weights=ExpertWeights(first, second, *biases),
    )
