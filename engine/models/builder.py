"""Reads named tensors into the parts that families are composed of, and counts the bytes that these hold."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor

from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.models.layers.linear import (
    Fp8Linear,
    Linear,
    LinearFormat,
    SeparateLinears,
    fits_fp8,
    linear,
)
from thothy_ai.engine.models.layers.norm import AddRMSNorm, FinalNorm
from thothy_ai.engine.models.tensors import TensorSource, Weight, num_rows, stacked
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.reference.quantize import dequantize
from thothy_ai.kernels.rotary import QKNorm, Rotary, rotary_table


class ModelBuilder:
    """`num_bytes` counts what was built so far. Weights that come packed stay so; others get `linear_format`."""

    def __init__(
        self, config: ModelConfig, source: TensorSource, operations: Operations, linear_format: LinearFormat
    ) -> None:
        self.config = config
        self.num_bytes = 0
        self._source, self._operations, self._format = source, operations, linear_format

    @cached_property
    def embedding(self) -> Tensor:
        """The table of token embeddings [vocab, hidden]; a tied head shares it."""
        return self.vector("model.embed_tokens.weight", self.config.vocab_size, self.config.hidden_size)

    @cached_property
    def rotary(self) -> Rotary:
        """The rotary table of every position, which all layers share."""
        config = self.config
        return rotary_table(
            config.rope.inverse_frequencies, config.rope.scaling, config.max_context, self.embedding.device
        )

    def vector(self, name: str, *shape: int) -> Tensor:
        """A tensor as it is."""
        return self.held(self._source.tensor(name, *shape))

    def held(self, tensor: Tensor) -> Tensor:
        """The tensor, its bytes counted."""
        self.num_bytes += tensor.nbytes
        return tensor

    def tensor(self, name: str, *shape: int) -> Tensor:
        """A tensor to make another one of: its bytes are not counted."""
        return self._source.tensor(name, *shape)

    def linear(self, outputs: Mapping[str, int], inputs: int, *, bias: bool = False) -> Linear:
        """One layer of the projections in `outputs` (name: rows), in that order."""
        parts = [self._source.weight(f"{name}.weight", rows, inputs) for name, rows in outputs.items()]
        biases = [self._source.tensor(f"{name}.bias", rows) for name, rows in outputs.items()] if bias else []
        weights = stacked(parts)
        shares = _split(_joined(biases), [num_rows(weight) for weight in weights])
        layers = [self._layer(weight, share) for weight, share in zip(weights, shares, strict=True)]
        return self._counted(layers[0] if len(layers) == 1 else SeparateLinears(layers))

    def qkv(self, prefix: str, *, bias: bool = False) -> Linear:
        """The query, key and value projections in one layer."""
        config = self.config
        queries, pairs = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        outputs = {prefix + "q_proj": queries, prefix + "k_proj": pairs, prefix + "v_proj": pairs}
        return self.linear(outputs, config.hidden_size, bias=bias)

    def qk_norm(self, prefix: str) -> QKNorm:
        """The norms over each head's queries and keys."""
        size = self.config.head_dim
        return QKNorm(self.vector(prefix + "q_norm.weight", size), self.vector(prefix + "k_norm.weight", size))

    def attention_output(self, prefix: str, *, bias: bool = False) -> Linear:
        """The output projection of attention."""
        config = self.config
        return self.linear({prefix + "o_proj": config.hidden_size}, config.num_heads * config.head_dim, bias=bias)

    def gate_up(self, prefix: str, *, bias: bool = False) -> Linear:
        """The gate and up projections in one layer."""
        inner = self.config.intermediate_size
        outputs = {prefix + "gate_proj": inner, prefix + "up_proj": inner}
        return self.linear(outputs, self.config.hidden_size, bias=bias)

    def down(self, prefix: str, *, bias: bool = False) -> Linear:
        """The down projection."""
        config = self.config
        return self.linear({prefix + "down_proj": config.hidden_size}, config.intermediate_size, bias=bias)

    def add_norm(self, name: str, before: Linear) -> AddRMSNorm:
        """The norm `name`; the linear layer `before` which it stands multiplies its results."""
        weight = self.vector(f"{name}.weight", self.config.hidden_size)
        return AddRMSNorm(weight, self.config.norm_eps, before.takes_fp8)

    def final_norm(self) -> FinalNorm:
        """The norm after the last layer."""
        return FinalNorm(self.vector("model.norm.weight", self.config.hidden_size), self.config.norm_eps)

    def head(self) -> Linear:
        """The projection to logits, tied to the embedding or on its own; plain unless the checkpoint has it packed."""
        config = self.config
        if config.tied_embeddings:
            return self._counted(linear(self.embedding, shared=True))
        weight = self._source.weight("lm_head.weight", config.vocab_size, config.hidden_size)
        return self._counted(linear(weight) if isinstance(weight, Tensor) else self._layer(weight, None))

    def _layer(self, weight: Weight, bias: Tensor | None) -> Linear:
        """The layer of a weight in the form it comes in, or in `linear_format` if it is plain."""
        dtype = self.embedding.dtype
        if isinstance(weight, Tensor):
            return self._format(weight, bias)
        if not isinstance(weight, Quantized):
            return weight.linear(bias, dtype, self._operations)
        if fits_fp8(weight.values):
            return Fp8Linear(weight, bias, dtype, self._operations)
        return linear(dequantize(weight).to(dtype), bias)

    def _counted(self, layer: Linear) -> Linear:
        self.num_bytes += layer.num_bytes
        return layer


def _joined(biases: list[Tensor]) -> Tensor | None:
    return torch.cat(biases) if len(biases) > 1 else next(iter(biases), None)


def _split(bias: Tensor | None, sizes: list[int]) -> list[Tensor | None]:
    return [None] * len(sizes) if bias is None else list(bias.split(sizes))
