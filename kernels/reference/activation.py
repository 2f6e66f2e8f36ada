"""The gated activations of SwiGLU and GeGLU feed-forward layers (Shazeer, 2020)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.lora import Shrunk
from thothy_ai.kernels.reference.lora import expand_add
from thothy_ai.kernels.reference.quantize import quantize_fp8


def silu_mul(gate_up: Tensor, shrunk: Shrunk | None = None) -> Tensor:
    """silu(gate) * up of [T, 2 * N], gate in the first half, after adding the adapters' part B A x -> [T, N]."""
    if shrunk is not None:
        expand_add(shrunk, gate_up)
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate).mul_(up)


def silu_mul_fp8(gate_up: Tensor) -> Quantized:
    """As `silu_mul`, quantized by row from float32."""
    return quantize_fp8(silu_mul(gate_up.float()))


def gelu_tanh_mul(gate_up: Tensor, shrunk: Shrunk | None = None) -> Tensor:
    """As `silu_mul`, with GELU by its tanh approximation."""
    if shrunk is not None:
        expand_add(shrunk, gate_up)
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.gelu(gate, approximate="tanh").mul_(up)


def gelu_tanh_mul_fp8(gate_up: Tensor) -> Quantized:
    """As `gelu_tanh_mul`, quantized by row from float32."""
    return quantize_fp8(gelu_tanh_mul(gate_up.float()))


def sigmoid_mul(x: Tensor, gate: Tensor) -> Tensor:
    """x times sigmoid(gate), both [T, N], computed in float32, in the type of x."""
    return (x.float() * gate.float().sigmoid()).to(x.dtype)


def add_gated(total: Tensor, x: Tensor, score: Tensor) -> None:
    """Add x [T, N] times sigmoid(score), score [T, 1], to total [T, N], computed in float32."""
    total.copy_(total.float() + x.float() * score.float().sigmoid())
