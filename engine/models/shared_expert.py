"""Builds mixtures with a gated shared expert.

A shared expert of the routed ones' size and format is computed as one more of them: in the same kernels, and by a
weight that the router finds.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.experts import ExpertNames, ExpertSizes, read_experts
from thothy_ai.engine.models.layers.experts import ExpertRouter, JoinedBlock, SparseBlock
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.engine.models.layers.norm import FinalNorm
from thothy_ai.engine.models.tensors import concatenated
from thothy_ai.kernels.experts import GATE_ROWS, SILU, ExpertMatrix, ExpertWeights, Mxfp4, Routing
from thothy_ai.kernels.fp8 import Quantized


def gated_mixture(
    build: ModelBuilder, prefix: str, norm: FinalNorm, sizes: ExpertSizes, routing: Routing
) -> SparseBlock | JoinedBlock:
    """The experts of the layer whose MLP is at `prefix`, and the norm before them."""
    names, shared = ExpertNames(f"{prefix}experts.", f"{prefix}experts."), f"{prefix}shared_expert."
    if _joins(build, names, shared, sizes):
        return _joined(build, prefix, norm, replace(names, shared=shared), sizes, routing)
    return SparseBlock(
        norm=norm,
        router=build.router(f"{prefix}gate", sizes.count, routing),
        experts=build.experts(names, sizes),
        shared=SwiGLU(build.gate_up(shared, inner=sizes.shared), build.down(shared, inner=sizes.shared)),
        shared_gate=build.vector(f"{prefix}shared_expert_gate.weight", 1, build.shape.hidden_size),
    )


def _joins(build: ModelBuilder, names: ExpertNames, shared: str, sizes: ExpertSizes) -> bool:
    """Whether the shared expert has the size of the others and will have their format, on a single device."""
    settings, source = build.shape.quantization, build.source
    if build.ranks is not None:  # `_joined` reads whole experts
        return False
    if sizes.shared != sizes.inner or (settings is not None and settings.mxfp4_experts):
        return False
    if build.expert_quantizer(sizes) is not None:
        return True

    def plain(prefix: str) -> bool:
        return isinstance(source.dense(f"{prefix}{names.up}.weight", sizes.inner, build.shape.hidden_size), Tensor)

    stacked = source.holds(f"{names.stacked}gate_up_proj")  # stacks are plain
    return plain(shared) == (stacked or plain(names.one(0)))


def _joined(
    build: ModelBuilder, prefix: str, norm: FinalNorm, names: ExpertNames, sizes: ExpertSizes, routing: Routing
) -> JoinedBlock:
    count, inner, hidden = sizes.count, sizes.inner, build.shape.hidden_size
    routed = slice(count)
    weights = read_experts(build.source, names, sizes, hidden, build.expert_quantizer(sizes))
    rows = build.vector(f"{prefix}gate.weight", count, hidden)
    gate = build.vector(f"{prefix}shared_expert_gate.weight", 1, hidden)
    router = concatenated((rows, gate, gate.new_zeros(GATE_ROWS - 1, hidden)))
    gate_up = {f"{names.shared}gate_proj": inner, f"{names.shared}up_proj": inner}
    apart = SparseBlock(
        norm,
        ExpertRouter(router[:count], routing),
        build.operations.experts(ExpertWeights(_part(weights.gate_up, routed), _part(weights.down, routed)), SILU),
        SwiGLU(
            build.adaptable(_part(weights.gate_up, count), gate_up, hidden),
            build.adaptable(_part(weights.down, count), {f"{names.shared}down_proj": hidden}, inner),
        ),
        router[count : count + 1],
    )
    joined = SparseBlock(norm, ExpertRouter(router, replace(routing, shared=True)), build.made_experts(weights))
    return JoinedBlock(joined, apart, build.adapters)


def _part(matrix: ExpertMatrix, which: int | slice) -> Tensor | Quantized:
    """One matrix of a stack, or several."""
    assert not isinstance(matrix, Mxfp4)
    return matrix[which] if isinstance(matrix, Tensor) else Quantized(matrix.values[which], matrix.scales[which])
