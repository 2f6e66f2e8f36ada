"""Reads named tensors into the parts that families are composed of, and counts the bytes that these hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import torch
from torch import Tensor

from thothy_ai.engine.models.decoder import Decoder, DecoderLayer
from thothy_ai.engine.models.experts import ExpertNames, ExpertSizes, Quantize, read_experts, read_mxfp4
from thothy_ai.engine.models.interleaved import half_split_order, reordered, reordered_rows
from thothy_ai.engine.models.layers.attention import SelfAttention
from thothy_ai.engine.models.layers.embedding import LinearHead, TokenEmbedding
from thothy_ai.engine.models.layers.experts import DenseBlock, ExpertRouter
from thothy_ai.engine.models.layers.linear import (
    FP8_MULTIPLE,
    Fp8Format,
    Fp8Linear,
    Linear,
    LinearFormat,
    SeparateLinears,
    fits_fp8,
    linear,
)
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.engine.models.layers.norm import AddRMSNorm, FinalNorm, ProjectionNorm, RMSNorm
from thothy_ai.engine.models.rope import Rope
from thothy_ai.engine.models.shape import ModelShape
from thothy_ai.engine.models.tensors import TensorSource, Weight, concatenated, num_rows, stacked
from thothy_ai.kernels.experts import SILU, ExpertActivation, Experts, ExpertWeights, Routing
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import PLAIN, AttentionParams
from thothy_ai.kernels.reference.quantize import dequantize
from thothy_ai.kernels.rotary import QKNorm, Rotary, rotary_table
from thothy_ai.kernels.states import Convolution

BuildLayer = Callable[["ModelBuilder", str, int], DecoderLayer]  # of the prefix of its tensors' names, and its index


class ModelBuilder:
    """Prefixes of names end with a dot. Weights that come packed stay so; others get `linear_format`.

    `num_bytes` counts what was built so far.
    """

    def __init__(
        self, shape: ModelShape, source: TensorSource, operations: Operations, linear_format: LinearFormat
    ) -> None:
        self.shape, self.source, self.operations = shape, source, operations
        self.num_bytes = 0
        self._format = linear_format

    @property
    def converts(self) -> bool:
        """Whether linear layers get another format than that of the model's type."""
        return self._format is not linear

    # The parts of a decoder

    def decoder(self, layer: BuildLayer) -> Decoder:
        """The layers between plain token embeddings and a final RMS norm and head."""
        return Decoder(
            embedding=TokenEmbedding(self.embedding),
            layers=self.layers(layer),
            norm=self.plain_norm("model.norm"),
            head=LinearHead(self.head()),
        )

    def layers(self, layer: BuildLayer) -> tuple[DecoderLayer, ...]:
        return tuple(layer(self, f"model.layers.{index}.", index) for index in range(self.shape.num_layers))

    def attention(
        self,
        qkv: Linear,
        output: Linear,
        rotary: Rotary | None,
        params: AttentionParams = PLAIN,
        *,
        qk_norm: QKNorm | None = None,
        projection_norm: ProjectionNorm | None = None,
        sinks: Tensor | None = None,
    ) -> SelfAttention:
        shape = self.shape
        return SelfAttention(
            qkv, output, rotary, shape.num_heads, shape.head_dim, shape.norm_eps, qk_norm,
            params.within(shape.max_context), projection_norm, sinks,
        )  # fmt: skip

    @cached_property
    def embedding(self) -> Tensor:
        """The table of token embeddings [vocab, hidden]; a tied head shares it."""
        return self.vector("model.embed_tokens.weight", self.shape.vocab_size, self.shape.hidden_size)

    def head(self) -> Linear:
        """The projection to logits, tied to the embedding or on its own; plain unless the checkpoint has it packed."""
        if self.shape.tied_embeddings:
            return self._counted(linear(self.embedding, shared=True))
        weight = self.source.weight("lm_head.weight", self.shape.vocab_size, self.shape.hidden_size)
        return self._counted(linear(weight) if isinstance(weight, Tensor) else self._layer(weight, None))

    # Positions

    @cached_property
    def rotary(self) -> Rotary:
        """The rotary table of every position, which most layers share."""
        return self._rotary_table(self.shape.rope)

    @cached_property
    def local_rotary(self) -> Rotary:
        """The table of layers with a sliding window."""
        local = self.shape.local_rope
        return self.rotary if local is None else self._rotary_table(local)

    def _rotary_table(self, rope: Rope) -> Rotary:
        return rotary_table(rope.inverse_frequencies, rope.scaling, self.shape.max_context, self.embedding.device)

    # Norms

    def rms_norm(self, name: str) -> RMSNorm:
        return RMSNorm(self.vector(f"{name}.weight", self.shape.hidden_size), self.shape.norm_eps)

    def add_norm(self, name: str, before: Linear, eps: float | None = None) -> AddRMSNorm:
        """The norm before linear layer `before`; its results are quantized if that takes fp8."""
        weight = self.vector(f"{name}.weight", self.shape.hidden_size)
        return AddRMSNorm(weight, self.shape.norm_eps if eps is None else eps, before.takes_fp8)

    def plain_norm(self, name: str) -> FinalNorm:
        """A norm with results that are never quantized."""
        return FinalNorm(self.vector(f"{name}.weight", self.shape.hidden_size), self.shape.norm_eps)

    def qk_norm(self, prefix: str) -> QKNorm:
        """The norms of each head's queries and keys."""
        size = self.shape.head_dim
        return QKNorm(self.vector(prefix + "q_norm.weight", size), self.vector(prefix + "k_norm.weight", size))

    # Projections

    def qkv(self, prefix: str, *, bias: bool = False) -> Linear:
        """The query, key and value projections in one layer."""
        return self.linear(self._qkv_outputs(prefix), self.shape.hidden_size, bias=bias)

    def interleaved_qkv(self, prefix: str, *, bias: bool = False) -> Linear:
        """As `qkv`, in a family with rotary pairs side by side: rows of queries and keys are put half-split."""
        outputs = self._qkv_outputs(prefix)
        orders = {name: self.half_split_order(outputs[name]) for name in (prefix + "q_proj", prefix + "k_proj")}
        return self.linear(outputs, self.shape.hidden_size, bias=bias, orders=orders)

    def fused_qkv(self, prefix: str) -> Linear:
        """The same projections, in a checkpoint that has them in one tensor."""
        rows = sum(self._qkv_outputs(prefix).values())
        return self.linear({prefix + "qkv_proj": rows}, self.shape.hidden_size)

    def attention_output(self, prefix: str, *, bias: bool = False) -> Linear:
        shape = self.shape
        return self.linear({prefix + "o_proj": shape.hidden_size}, shape.num_heads * shape.head_dim, bias=bias)

    def gate_up(self, prefix: str, *, bias: bool = False, inner: int | None = None) -> Linear:
        """The gate and up projections in one layer; `inner` is their size if it is not the model's."""
        inner = inner or self.shape.intermediate_size
        outputs = {prefix + "gate_proj": inner, prefix + "up_proj": inner}
        return self.linear(outputs, self.shape.hidden_size, bias=bias)

    def fused_gate_up(self, prefix: str) -> Linear:
        """The same projections, in a checkpoint that has them in one tensor."""
        return self.linear({prefix + "gate_up_proj": 2 * self.shape.intermediate_size}, self.shape.hidden_size)

    def down(self, prefix: str, *, bias: bool = False, inner: int | None = None) -> Linear:
        inner = inner or self.shape.intermediate_size
        return self.linear({prefix + "down_proj": self.shape.hidden_size}, inner, bias=bias)

    def half_split_order(self, rows: int) -> Tensor:
        """The order of the rows of an interleaved projection, on the weights' device."""
        rotated = 2 * len(self.shape.rope.inverse_frequencies)
        head_dim = self.shape.head_dim
        return half_split_order(rows // head_dim, head_dim, rotated).to(self.embedding.device)

    def _qkv_outputs(self, prefix: str) -> dict[str, int]:
        shape = self.shape
        queries, pairs = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        return {prefix + "q_proj": queries, prefix + "k_proj": pairs, prefix + "v_proj": pairs}

    def linear(
        self, outputs: Mapping[str, int], inputs: int, *, bias: bool = False, orders: Mapping[str, Tensor] | None = None
    ) -> Linear:
        """One layer of the projections in `outputs` (name: rows), in that order.

        `orders`: the order [rows] that a projection's rows are put in, by its name; others keep theirs.
        """
        orders = orders or {}
        parts = [
            reordered(self.source.weight(f"{name}.weight", rows, inputs), orders.get(name))
            for name, rows in outputs.items()
        ]
        biases = [
            reordered_rows(self.source.tensor(f"{name}.bias", rows), orders.get(name))
            for name, rows in outputs.items()
            if bias
        ]
        weights = stacked(parts)
        shares: list[Tensor | None] = [None] * len(weights)
        if biases:
            joined = concatenated(biases) if len(biases) > 1 else biases[0]
            shares = list(joined.split([num_rows(weight) for weight in weights]))
        layers = [self._layer(weight, share) for weight, share in zip(weights, shares, strict=True)]
        return self._counted(layers[0] if len(layers) == 1 else SeparateLinears(layers))

    def _layer(self, weight: Weight, bias: Tensor | None) -> Linear:
        """The layer of a weight in the form it comes in, or in `linear_format` if it is plain."""
        dtype = self.embedding.dtype
        if isinstance(weight, Tensor):
            return self._format(weight, bias)
        if not isinstance(weight, Quantized):
            return weight.linear(bias, dtype, self.operations)
        if fits_fp8(weight.values):
            return Fp8Linear(weight, bias, dtype, self.operations)
        return linear(dequantize(weight).to(dtype), bias)

    def _counted(self, layer: Linear) -> Linear:
        self.num_bytes += layer.num_bytes
        return layer

    # Experts

    def dense_block(self, prefix: str) -> DenseBlock:
        """The MLP of layer `prefix` in a model with experts in other layers, and the norm before it."""
        gate_up = self.gate_up(prefix + "mlp.")
        norm = self.add_norm(prefix + "post_attention_layernorm", before=gate_up)
        return DenseBlock(norm, SwiGLU(gate_up, self.down(prefix + "mlp.")))

    def router(
        self, name: str, experts: int, routing: Routing, *, bias: bool = False, correction: str | None = None
    ) -> ExpertRouter:
        """`correction` names the tensor that is added to scores when experts are chosen."""
        return ExpertRouter(
            self.vector(f"{name}.weight", experts, self.shape.hidden_size),
            routing,
            self.vector(f"{name}.bias", experts) if bias else None,
            None if correction is None else self.held(self.source.stored(correction, experts).float()),
        )

    def experts(
        self,
        names: ExpertNames,
        sizes: ExpertSizes,
        activation: ExpertActivation = SILU,
        hidden: int | None = None,
    ) -> Experts:
        """A layer's experts: in MXFP4 if they come so, in fp8 where linear layers are and sizes allow it.

        `hidden` is the size of what they work on, if it is not the model's.
        """
        hidden = hidden or self.shape.hidden_size
        quantize = self.expert_quantizer(sizes, hidden)
        if self.shape.quantization is not None and self.shape.quantization.mxfp4_experts:
            packed = read_mxfp4(self.source, names.stacked, sizes, hidden)
            return self.made_experts(ExpertWeights(*packed), activation)
        return self.made_experts(read_experts(self.source, names, sizes, hidden, quantize), activation)

    def expert_quantizer(self, sizes: ExpertSizes, hidden: int | None = None) -> Quantize | None:
        """What turns experts that come plain into fp8; None where they stay as they are."""
        hidden = hidden or self.shape.hidden_size
        fits = not (hidden % FP8_MULTIPLE or sizes.inner % FP8_MULTIPLE)
        return self.operations.quantize_fp8 if fits and isinstance(self._format, Fp8Format) else None

    def made_experts(self, weights: ExpertWeights, activation: ExpertActivation = SILU) -> Experts:
        """Experts of weights that were read already; their bytes are counted."""
        for part in (weights.gate_up, weights.down, weights.gate_up_bias, weights.down_bias):
            for tensor in (part,) if isinstance(part, Tensor) else part or ():
                self.held(tensor)
        return self.operations.experts(weights, activation)

    # Recurrences

    def taps(self, name: str, channels: int, width: int, *, bias: bool = False, silu: bool = True) -> Convolution:
        """A short convolution, whose weight checkpoints have as [channels, 1, width]."""
        weight = self.source.tensor(f"{name}.weight", channels, 1, width).view(channels, width)
        return Convolution(self.held(weight), self.vector(f"{name}.bias", channels) if bias else None, silu)

    def rates(self, name: str, heads: int) -> Tensor:
        """Rates of decay [heads] float32, whose negative logarithms are stored."""
        logarithms = self.exact(name, heads)
        return logarithms if logarithms.is_meta else logarithms.exp_().neg_()

    def exact(self, name: str, size: int) -> Tensor:
        """A vector [size] in float32, not rounded to the model's type."""
        return self.held(self.source.stored(name, size).to(torch.float32, copy=True))

    # Tensors

    def vector(self, name: str, *shape: int) -> Tensor:
        """A tensor as it is stored; its bytes are counted."""
        return self.held(self.source.tensor(name, *shape))

    def float32(self, name: str, *shape: int) -> Tensor:
        """A copy in float32 for the caller to change in place; its bytes are not counted.

        For tensors without storage torch imports its compiler to add or multiply otherwise than in place.
        """
        return self.source.tensor(name, *shape).to(torch.float32, copy=True)

    def held(self, tensor: Tensor) -> Tensor:
        """The tensor, its bytes counted."""
        self.num_bytes += tensor.nbytes
        return tensor
