"""Builds the parts of model families from named tensors, and counts the bytes that they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from thothy_ai.engine.models.cut import cut_inputs, cut_rows
from thothy_ai.engine.models.decoder import Decoder, DecoderLayer
from thothy_ai.engine.models.experts import ExpertNames, ExpertSizes, Quantize, cut_mxfp4, read_experts, read_mxfp4
from thothy_ai.engine.models.interleaved import half_split_order, reordered, reordered_rows
from thothy_ai.engine.models.layers.adapted import AdapterBank
from thothy_ai.engine.models.layers.attention import SelfAttention
from thothy_ai.engine.models.layers.embedding import Embedding, LinearHead, ScaledEmbedding, TokenEmbedding
from thothy_ai.engine.models.layers.experts import DenseBlock, ExpertRouter
from thothy_ai.engine.models.layers.linear import (
    FP8_MULTIPLE,
    DenseLinear,
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
from thothy_ai.engine.models.layers.parallel import GatheredLinear, ReducedExperts, ReducedLinear, SharedEmbedding
from thothy_ai.engine.models.ranks import Ranks, share_of
from thothy_ai.engine.models.rope import Rope
from thothy_ai.engine.models.shape import LatentSizes, ModelShape
from thothy_ai.engine.models.tensors import TensorSource, Weight, concatenated, num_rows, stacked
from thothy_ai.kernels.experts import SILU, ExpertActivation, Experts, ExpertWeights, Routing
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import PLAIN, AttentionParams
from thothy_ai.kernels.reference.quantize import dequantize
from thothy_ai.kernels.rotary import QKNorm, Rotary, rotary_table
from thothy_ai.kernels.states import Convolution

BuildLayer = Callable[["ModelBuilder", str, int], DecoderLayer]  # takes the prefix of its tensors' names, and its index


class ModelBuilder:
    """Prefixes of names end with a dot. Packed weights stay packed; all others get `linear_format`.

    `num_bytes` counts what was built so far. With several `ranks`, one rank's share is built. `shape`, like all sizes
    that families give, is the whole model's; parts without a `share` are the same on each rank.
    """

    def __init__(
        self,
        shape: ModelShape,
        source: TensorSource,
        operations: Operations,
        linear_format: LinearFormat,
        ranks: Ranks | None = None,
    ) -> None:
        self.shape, self.source, self.operations, self.ranks = shape, source, operations, ranks
        self.share = share_of(ranks)
        self.num_bytes = 0
        self.adapters = AdapterBank(operations)
        self._format = linear_format

    @property
    def converts(self) -> bool:
        """Whether linear layers get a format other than the model's type."""
        return self._format is not linear

    # The parts of a decoder

    def decoder(self, layer: BuildLayer) -> Decoder:
        """The layers between plain token embeddings and a final RMS norm and head."""
        return Decoder(
            embedding=self.token_embedding(),
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
            qkv, output, rotary, self.num_heads, shape.head_dim, shape.norm_eps, qk_norm,
            params.within(shape.max_context), projection_norm, sinks,
        )  # fmt: skip

    @property
    def num_heads(self) -> int:
        """This rank's query heads in each layer."""
        return self.shape.num_heads // self.share.size

    @cached_property
    def embedding(self) -> Tensor:
        """The table of token embeddings [vocab, hidden], or this rank's rows; a tied head shares it."""
        name, sizes = "model.embed_tokens.weight", (self.shape.vocab_size, self.shape.hidden_size)
        if self.share.whole:
            return self.vector(name, *sizes)
        return self.held(self.source.tensor(name, *sizes)[self._tokens].clone())

    def token_embedding(self, factor: float = 1.0) -> Embedding:
        """Token embeddings from the table, times a factor."""
        if self.ranks is not None:
            return SharedEmbedding(self.embedding, self._tokens.start, factor, self.ranks)
        return TokenEmbedding(self.embedding) if factor == 1.0 else ScaledEmbedding(self.embedding, factor)

    def head(self) -> Linear:
        """The projection to logits, tied to the embedding or separate; plain unless it is packed in the checkpoint."""
        layer = self._counted(self._own_head())
        return layer if self.ranks is None else GatheredLinear(layer, self.shape.vocab_size, self.ranks)

    def _own_head(self) -> Linear:
        """The head, or this rank's rows of it."""
        if self.shape.tied_embeddings:
            return linear(self.embedding, shared=True)
        weight = self.source.weight("lm_head.weight", self.shape.vocab_size, self.shape.hidden_size)
        if not self.share.whole:
            weight = cut_rows(weight, self._tokens)
        return linear(weight) if isinstance(weight, Tensor) else self._layer(weight, None)

    @property
    def _tokens(self) -> slice:
        """The tokens of this rank's part of the vocabulary; the last rank may have fewer."""
        each = -(-self.shape.vocab_size // self.share.size)
        return slice(self.share.rank * each, min(self.shape.vocab_size, (self.share.rank + 1) * each))

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
        """The norm before linear layer `before`; its results are quantized if that layer takes fp8."""
        weight = self.vector(f"{name}.weight", self.shape.hidden_size)
        return AddRMSNorm(weight, self.shape.norm_eps if eps is None else eps, before.takes_fp8)

    def plain_norm(self, name: str) -> FinalNorm:
        """A norm with results that are never quantized."""
        return FinalNorm(self.vector(f"{name}.weight", self.shape.hidden_size), self.shape.norm_eps)

    def qk_norm(self, prefix: str) -> QKNorm:
        """The norms of each head's queries and keys."""
        size = self.shape.head_dim
        return QKNorm(self.vector(prefix + "q_norm.weight", size), self.vector(prefix + "k_norm.weight", size))

    def by_head(self, name: str, heads: int) -> Tensor:
        """This rank's part [heads * head_dim] of a vector over all heads."""
        stored = self.source.tensor(name, heads * self.shape.head_dim)
        return self.held(self.share.of(stored.view(heads, -1)).flatten())

    # Projections

    def qkv(self, prefix: str, *, bias: bool = False) -> Linear:
        """The query, key and value projections in one layer."""
        return self.column_parallel(self._qkv_outputs(prefix), self.shape.hidden_size, self.shape.head_dim, bias=bias)

    def interleaved_qkv(self, prefix: str, *, bias: bool = False) -> Linear:
        """Like `qkv`, for families with interleaved rotary pairs: rows of queries and keys become half-split."""
        outputs, shape = self._qkv_outputs(prefix), self.shape
        orders = {name: self.half_split_order(outputs[name]) for name in (prefix + "q_proj", prefix + "k_proj")}
        return self.column_parallel(outputs, shape.hidden_size, shape.head_dim, bias=bias, orders=orders)

    def fused_qkv(self, prefix: str) -> Linear:
        """The same projections, in a checkpoint that has them in one tensor."""
        rows, shape = tuple(self._qkv_outputs(prefix).values()), self.shape
        return self.column_parallel({prefix + "qkv_proj": sum(rows)}, shape.hidden_size, shape.head_dim, fused=rows)

    def attention_output(self, prefix: str, *, bias: bool = False) -> Linear:
        shape = self.shape
        return self.row_parallel({prefix + "o_proj": shape.hidden_size}, shape.num_heads * shape.head_dim, bias=bias)

    def expansions(self, name: str, latent: LatentSizes) -> tuple[Tensor, Tensor]:
        """This rank's weights that expand latents to keys [heads, plain, rank] and values [heads, rank, value]. They
        are dequantized if packed, since attention does not multiply them with latents.
        """
        heads = self.shape.num_heads
        stored = self.source.tensor(f"{name}.weight", heads * (latent.plain + latent.value), latent.rank)
        own = self.held(self.share.of(stored.view(heads, -1, latent.rank)))
        return own[:, : latent.plain], own[:, latent.plain :].transpose(1, 2)

    def gate_up(self, prefix: str, *, bias: bool = False, inner: int | None = None) -> Linear:
        """The gate and up projections in one layer; `inner` is their size if it is not the model's."""
        inner = inner or self.shape.intermediate_size
        outputs = {prefix + "gate_proj": inner, prefix + "up_proj": inner}
        return self.column_parallel(outputs, self.shape.hidden_size, bias=bias)

    def fused_gate_up(self, prefix: str) -> Linear:
        """The same projections, in a checkpoint that has them in one tensor."""
        rows = (self.shape.intermediate_size,) * 2
        return self.column_parallel({prefix + "gate_up_proj": sum(rows)}, self.shape.hidden_size, fused=rows)

    def down(self, prefix: str, *, bias: bool = False, inner: int | None = None) -> Linear:
        inner = inner or self.shape.intermediate_size
        return self.row_parallel({prefix + "down_proj": self.shape.hidden_size}, inner, bias=bias)

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
        """One layer of the projections in `outputs` (name: rows), in that order; the same on every rank.

        `orders`: the order [rows] that a projection's rows are put in, by its name; others keep theirs.
        """
        layer = self._joined(*self._read(outputs, inputs, bias=bias, orders=orders))
        return self._adapted(layer, outputs, inputs, orders)

    def column_parallel(
        self,
        outputs: Mapping[str, int],
        inputs: int,
        unit: int = 1,
        *,
        fused: Sequence[int] = (),
        bias: bool = False,
        orders: Mapping[str, Tensor] | None = None,
    ) -> Linear:
        """As `linear`; each rank has a share of each projection's rows, in whole units (heads).

        `fused`: the rows of each projection, where they are in one tensor, the only one of `outputs`.
        """
        weights, biases = self._read(outputs, inputs, bias=bias, orders=orders)
        if not self.share.whole:
            cuts = [[*self._rows(fused or (rows,), unit)] for rows in outputs.values()]
            weights = [cut_rows(weight, rows) for weight, own in zip(weights, cuts, strict=True) for rows in own]
            pairs = zip(biases, cuts, strict=True) if bias else ()
            biases = [each[rows].clone() for each, own in pairs for rows in own]
        return self._adapted(self._joined(weights, biases), outputs, inputs, orders)

    def row_parallel(self, outputs: Mapping[str, int], inputs: int, *, bias: bool = False) -> Linear:
        """As `linear`; each rank has a share of the inputs, and results are summed over the ranks."""
        weights, biases = self._read(outputs, inputs, bias=bias)
        if self.ranks is None:
            return self._adapted(self._joined(weights, biases), outputs, inputs)
        part = self.share.part(inputs)
        own = [cut_inputs(weight, part, name) for name, weight in zip(outputs, weights, strict=True)]
        return ReducedLinear(self._joined(own, [] if self.share.rank else biases), self.ranks)

    def adaptable(self, weight: Tensor | Quantized, outputs: Mapping[str, int], inputs: int) -> Linear:
        """A layer of a weight that other parts hold and count; it makes no copy in a format of its own."""
        layer = DenseLinear(weight, None, shared=True) if isinstance(weight, Tensor) else self._layer(weight, None)
        return self._adapted(layer, outputs, inputs)

    def _adapted(
        self, layer: Linear, outputs: Mapping[str, int], inputs: int, orders: Mapping[str, Tensor] | None = None
    ) -> Linear:
        """The layer wrapped for adapters; unchanged if several ranks share the model, which have no adapters."""
        return self.adapters.wrapped(layer, outputs, inputs, orders or {}) if self.ranks is None else layer

    def _read(
        self, outputs: Mapping[str, int], inputs: int, *, bias: bool, orders: Mapping[str, Tensor] | None = None
    ) -> tuple[list[Weight], list[Tensor]]:
        """The weights and biases of these projections, in the order that their rows are put in."""
        orders = orders or {}
        weights = [
            reordered(self.source.weight(f"{name}.weight", rows, inputs), orders.get(name))
            for name, rows in outputs.items()
        ]
        biases = [
            reordered_rows(self.source.tensor(f"{name}.bias", rows), orders.get(name))
            for name, rows in outputs.items()
            if bias
        ]
        return weights, biases

    def _rows(self, sizes: Sequence[int], unit: int) -> Iterator[slice]:
        """This rank's rows of each of several stacked projections."""
        begin = 0
        for size in sizes:
            part = self.share.part(size // unit)
            yield slice(begin + part.start * unit, begin + part.stop * unit)
            begin += size

    def _joined(self, parts: Sequence[Weight], biases: Sequence[Tensor]) -> Linear:
        """Join projections of the same inputs, and their biases if any, into one layer."""
        weights = stacked(parts)
        shares: list[Tensor | None] = [None] * len(weights)
        if biases:
            joined = concatenated(biases) if len(biases) > 1 else biases[0]
            shares = list(joined.split([num_rows(weight) for weight in weights]))
        layers = [self._layer(weight, share) for weight, share in zip(weights, shares, strict=True)]
        return self._counted(layers[0] if len(layers) == 1 else SeparateLinears(layers))

    def _layer(self, weight: Weight, bias: Tensor | None) -> Linear:
        """A layer for a weight: in its own format if it is packed, otherwise in `linear_format`."""
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
        """A layer's experts: in MXFP4 if stored so, or in fp8 if linear layers are and the sizes allow it.

        `hidden` is the size of their inputs if it differs from the model's.
        """
        hidden = hidden or self.shape.hidden_size
        quantize = self.expert_quantizer(sizes, hidden)
        if self.shape.quantization is not None and self.shape.quantization.mxfp4_experts:
            packed = read_mxfp4(self.source, names.stacked, sizes, hidden)
            return self.made_experts(ExpertWeights(*cut_mxfp4(packed, self.share)), activation)
        return self.made_experts(read_experts(self.source, names, sizes, hidden, quantize, self.share), activation)

    def expert_quantizer(self, sizes: ExpertSizes, hidden: int | None = None) -> Quantize | None:
        """The function that quantizes plain experts to fp8; None if they stay plain."""
        hidden, inner = hidden or self.shape.hidden_size, sizes.inner // self.share.size
        fits = not (hidden % FP8_MULTIPLE or inner % FP8_MULTIPLE)
        return self.operations.quantize_fp8 if fits and isinstance(self._format, Fp8Format) else None

    def made_experts(self, weights: ExpertWeights, activation: ExpertActivation = SILU) -> Experts:
        """Experts from weights already read, this rank's share of each; counts their bytes."""
        for part in (weights.gate_up, weights.down, weights.gate_up_bias, weights.down_bias):
            for tensor in (part,) if isinstance(part, Tensor) else part or ():
                self.held(tensor)
        experts = self.operations.experts(weights, activation)
        return experts if self.ranks is None else ReducedExperts(experts, self.ranks)

    # Recurrences

    def taps(self, name: str, channels: int, width: int, *, bias: bool = False, silu: bool = True) -> Convolution:
        """A short convolution, whose weight checkpoints have as [channels, 1, width].

        A tap's factors lie together here, so that kernels read many at a time.
        """
        weight = self.source.tensor(f"{name}.weight", channels, 1, width).view(channels, width).t().contiguous().t()
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
