"""A model with fp8 weights beside what it stands for: the same numbers as float32, on the CPU, nothing quantized."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from thothy_ai.engine.models.layers.adapted import AdaptedLinear
from thothy_ai.engine.models.layers.linear import DenseLinear, Fp8Linear, PackedLinear
from thothy_ai.engine.models.layers.norm import AddRMSNorm
from thothy_ai.engine.models.model import Model
from thothy_ai.kernels.experts import ExpertMatrix, ExpertWeights
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.reference.experts import Experts
from thothy_ai.kernels.reference.operations import ReferenceOperations
from thothy_ai.kernels.reference.quantize import dequantize
from thothy_ai.kernels.triton.experts import Experts as TritonExperts
from thothy_ai.kernels.triton.experts.operands import Operand

TOKENS = torch.randint(3, 131, (80,), generator=torch.Generator().manual_seed(1)).tolist()
# Of log-probabilities, as a share of their deviation; on a CPU quantized activations make 0.03 to 0.07 of it.
APART = 0.12
APART_WITH_EXPERTS = 0.2  # rounding may lead to others


@torch.inference_mode()
def dequantized(model: Model) -> Model:
    """What the weights stand for."""
    return replace(model, decoder=_wide(model.decoder), operations=ReferenceOperations())


@torch.inference_mode()
def log_probabilities(model: Model, tokens: Sequence[int]) -> Tensor:
    """[T, vocab] float64, over a prefill, a chunk and a few decode steps."""
    run = PagedRun(model, 1, len(tokens))
    parts = [tokens[:40], tokens[40:75], *([token] for token in tokens[75:])]
    return torch.cat([run.step({0: part})[0] for part in parts]).cpu().double().log_softmax(-1)


def check_fp8_weights(folder: Path, device: torch.device, dtype: torch.dtype) -> float:
    """How far the model in `dtype` lies from what its weights stand for; nothing that is not finite."""
    model = load_model(folder, device=device, dtype=dtype, weights="fp8").model
    got, wanted = log_probabilities(model, TOKENS), log_probabilities(dequantized(model), TOKENS)
    assert bool(got.isfinite().all())
    apart = float((got - wanted).norm() / (wanted - wanted.mean(-1, keepdim=True)).norm())
    assert 1e-3 < apart < (APART if model.config.experts is None else APART_WITH_EXPERTS)
    return apart


def _wide(part: Any) -> Any:
    """A part of a decoder with all that it holds as float32 on the CPU, and nothing that quantizes."""
    match part:
        case Tensor():
            return part.float().cpu()
        case Quantized():
            return dequantize(part).cpu()
        case Fp8Linear() | DenseLinear() | PackedLinear():
            return DenseLinear(_wide(part._weight), _wide(part._bias), shared=False)
        case Experts():
            return Experts(_wide(part._weights), part._activation)
        case TritonExperts():
            return Experts(_wide(_weights_of(part)), part._activation)
    return _wide_whole(part)


def _weights_of(experts: TritonExperts) -> ExpertWeights:
    """What it was made of, unless that was MXFP4."""
    made = (_matrix_of(operand, experts._experts) for operand in (experts._gate_up, experts._down))
    return ExpertWeights(*made, experts._gate_up_bias, experts._down_bias)


def _matrix_of(operand: Operand, experts: int) -> ExpertMatrix:
    values = operand.values.view(experts, -1, operand.inputs)
    return values if operand.scales is None else Quantized(values, operand.scales.view(experts, -1, 1))


def _wide_whole(part: Any) -> Any:
    if isinstance(part, AdaptedLinear):
        return _wide(part.layer)
    if isinstance(part, AddRMSNorm):
        return replace(part, weight=_wide(part.weight), to_fp8=False)
    if isinstance(part, tuple):
        wide = map(_wide, part)
        return type(part)(*wide) if hasattr(part, "_fields") else tuple(wide)
    return _with_wide_fields(part) if is_dataclass(part) else part


def _with_wide_fields(part: Any) -> Any:
    return replace(part, **{field.name: _wide(getattr(part, field.name)) for field in fields(part)})
