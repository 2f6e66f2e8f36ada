"""Mixtures of experts in plain torch: the router, and the experts one after another."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.experts import (
    GATE_ROWS,
    ExpertActivation,
    ExpertMatrix,
    ExpertWeights,
    Mxfp4,
    Routed,
    Routing,
    SquaredReLU,
)
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.reference.mxfp4 import dequantize_mxfp4
from thothy_ai.kernels.reference.quantize import dequantize, quantize_fp8


def route(x: Tensor, weight: Tensor, bias: Tensor | None, correction: Tensor | None, routing: Routing) -> Routed:
    """Experts of tokens x [T, K] by the router's weight [E, K] and bias [E] or none, computed in float32.

    `correction` [E] float32 or none. With a shared expert, the weight is [E + GATE_ROWS, K].
    """
    if routing.shared:
        weight, gate = weight[:-GATE_ROWS], weight[-GATE_ROWS, None]
    logits = functional.linear(x.float(), weight.float(), None if bias is None else bias.float())
    scores = logits.softmax(-1) if routing.scores == "softmax" else logits.sigmoid()
    ranks = scores if correction is None else scores + correction
    if routing.groups > 1:  # experts outside the best groups take no part
        grouped: Tensor = ranks.unflatten(-1, (routing.groups, -1))
        best = grouped.topk(routing.best, dim=-1).values.sum(-1)
        kept = best.sort(dim=-1, descending=True, stable=True).indices[:, : routing.kept_groups]
        inside = torch.zeros_like(best, dtype=torch.bool).scatter_(1, kept, value=True)
        ranks = grouped.masked_fill(~inside[..., None], -torch.inf).flatten(-2)
    experts = ranks.sort(dim=-1, descending=True, stable=True).indices[:, : routing.top_k]
    weights = scores.gather(1, experts)
    if routing.renormalized:
        weights = weights / weights.sum(-1, keepdim=True)
    weights = weights * routing.scale
    if routing.shared:
        experts = functional.pad(experts, (0, 1), value=logits.shape[1])
        weights = torch.cat((weights, functional.linear(x.float(), gate.float()).sigmoid()), dim=1)
    return Routed(experts.int(), weights)


class Experts:
    """x [T, K] -> [T, K]. Plain weights multiply in the type of x, fp8 ones in float32 what both sides stand for."""

    def __init__(self, weights: ExpertWeights, activation: ExpertActivation) -> None:
        self._weights, self._activation = weights, activation

    def __call__(self, x: Tensor, expert_ids: Tensor, expert_weights: Tensor) -> Tensor:
        """Weighted by expert_weights [T, k], and summed in float32."""
        weights = self._weights
        made = x.new_zeros(*expert_ids.shape, x.shape[1], dtype=torch.float32)
        for expert in expert_ids.unique().tolist():
            token, place = (expert_ids == expert).nonzero(as_tuple=True)
            gate_up = _linear(x[token], weights.gate_up, weights.gate_up_bias, expert)
            inner = activated(gate_up, self._activation)
            made[token, place] = _linear(inner, weights.down, weights.down_bias, expert).to(x.dtype).float()
        return (made * expert_weights[..., None]).sum(1).to(x.dtype)


def activated(gate_up: Tensor, activation: ExpertActivation) -> Tensor:
    """[T, 2N], gate in the first half -> [T, N]; without gates, of the same shape."""
    if isinstance(activation, SquaredReLU):
        return gate_up.relu().square()
    gate, up = gate_up.chunk(2, dim=-1)
    if activation.limit is not None:
        gate, up = gate.clamp(max=activation.limit), up.clamp(-activation.limit, activation.limit)
    opened = activation.alpha * gate
    if activation.cubic:
        opened = opened * (1 + activation.cubic * gate * gate)
    return gate * torch.sigmoid(opened) * (up + activation.offset)


def _linear(x: Tensor, matrix: ExpertMatrix, bias: Tensor | None, expert: int) -> Tensor:
    bias = None if bias is None else bias[expert]
    if isinstance(matrix, Quantized):
        wide = dequantize(Quantized(matrix.values[expert], matrix.scales[expert]))
        return functional.linear(dequantize(quantize_fp8(x)), wide, None if bias is None else bias.float())
    if isinstance(matrix, Mxfp4):
        matrix_of_expert = dequantize_mxfp4(Mxfp4(matrix.blocks[expert], matrix.scales[expert])).to(x.dtype)
    else:
        matrix_of_expert = matrix[expert]
    return functional.linear(x, matrix_of_expert, None if bias is None else bias.to(x.dtype))
