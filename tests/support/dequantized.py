"""A model with fp8 weights beside what it stands for: the same numbers as float32, on the CPU, nothing quantized."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from tests.support.paged_run import PagedRun
from thothy_ai.engine.models.decoder import Layer, LinearInputs, Model
from thothy_ai.engine.models.linear import DenseLinear, Fp8Linear
from thothy_ai.engine.weights.loader import load_model
from thothy_ai.kernels.reference.operations import ReferenceOperations
from thothy_ai.kernels.reference.quantize import dequantize
from thothy_ai.kernels.rotary import QKNorm

PROJECTIONS = ("qkv", "output", "gate_up", "down")
TOKENS = torch.randint(3, 131, (80,), generator=torch.Generator().manual_seed(1)).tolist()
# Of log-probabilities, as a share of their deviation; on a CPU quantized activations make 0.03 to 0.07 of it.
APART = 0.12


@torch.inference_mode()
def dequantized(model: Model) -> Model:
    """What the weights stand for."""
    operations = ReferenceOperations()
    return replace(
        model,
        embedding=_wide(model.embedding),
        layers=tuple(_layer(layer) for layer in model.layers),
        norm=_wide(model.norm),
        head=_dense(model.head),
        rotary=type(model.rotary)(*map(_wide, model.rotary)),
        operations=operations,
        inputs=LinearInputs.plain(operations),
    )


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
    assert 1e-3 < apart < APART
    return apart


def _layer(layer: Layer) -> Layer:
    norms = None if layer.qk_norm is None else QKNorm(*map(_wide, layer.qk_norm))
    projections = {name: _projection(getattr(layer, name)) for name in PROJECTIONS}
    return replace(
        layer,
        attention_norm=_wide(layer.attention_norm),
        mlp_norm=_wide(layer.mlp_norm),
        qk_norm=norms,
        **projections,
    )


def _projection(quantized: Fp8Linear) -> DenseLinear:
    bias = quantized._bias
    return DenseLinear(dequantize(quantized._weight).cpu(), None if bias is None else _wide(bias), shared=False)


def _dense(head: DenseLinear) -> DenseLinear:
    return DenseLinear(_wide(head._weight), None, shared=False)


def _wide(values: Tensor) -> Tensor:
    return values.float().cpu()
