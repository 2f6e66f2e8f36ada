"""From named tensors to a `Model`: which tensor goes where, and which are merged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.models.decoder import Layer, Model
from thothy_ai.engine.models.linear import Linear, linear
from thothy_ai.engine.weights.formats import WeightFormat, plain
from thothy_ai.kernels.operations import Operations, operations_for
from thothy_ai.kernels.rotary import QKNorm, rotary_table


class TensorSource(Protocol):
    """Tensors under the names that transformers saves them by, on their device and in their type already."""

    def tensor(self, name: str, *shape: int) -> Tensor:
        """The tensor, which must have `shape`; ModelLoadError otherwise."""
        ...


def assemble(
    config: ModelConfig, source: TensorSource, weight_format: Callable[[Operations], WeightFormat] = plain
) -> Model:
    """The model of `config` with the source's weights, which its layers hold in `weight_format`."""
    return _Assembly(config, source, weight_format).model()


class _Assembly:
    def __init__(
        self, config: ModelConfig, source: TensorSource, weight_format: Callable[[Operations], WeightFormat]
    ) -> None:
        self._config, self._source = config, source
        self._num_bytes = 0
        self._embedding = self._vector("model.embed_tokens.weight", config.vocab_size, config.hidden_size)
        self._operations = operations_for(self._embedding.device)
        self._format = weight_format(self._operations)

    def model(self) -> Model:
        config, rope = self._config, self._config.rope
        return Model(
            config=config,
            embedding=self._embedding,
            layers=tuple(self._layer(f"model.layers.{index}.") for index in range(config.num_layers)),
            norm=self._vector("model.norm.weight", config.hidden_size),
            head=self._head(),
            rotary=rotary_table(rope.inverse_frequencies, rope.scaling, config.max_context, self._embedding.device),
            num_bytes=self._num_bytes,
            operations=self._operations,
            inputs=self._format.inputs,
        )

    def _layer(self, prefix: str) -> Layer:
        config, traits = self._config, self._config.traits
        hidden, inner = config.hidden_size, config.intermediate_size
        queries, pairs = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        return Layer(
            attention_norm=self._vector(prefix + "input_layernorm.weight", hidden),
            qkv=self._merged(
                {attention + "q_proj": queries, attention + "k_proj": pairs, attention + "v_proj": pairs},
                hidden,
                bias=traits.qkv_bias,
            ),
            qk_norm=self._qk_norm(attention) if traits.qk_norm else None,
            output=self._merged({attention + "o_proj": hidden}, queries, bias=traits.output_bias),
            mlp_norm=self._vector(prefix + "post_attention_layernorm.weight", hidden),
            gate_up=self._merged({mlp + "gate_proj": inner, mlp + "up_proj": inner}, hidden, bias=traits.mlp_bias),
            down=self._merged({mlp + "down_proj": hidden}, inner, bias=traits.mlp_bias),
        )

    def _qk_norm(self, attention: str) -> QKNorm:
        size = self._config.head_dim
        return QKNorm(
            query=self._vector(attention + "q_norm.weight", size), key=self._vector(attention + "k_norm.weight", size)
        )

    def _head(self) -> Linear:
        config = self._config
        if config.tied_embeddings:
            return self._counted(linear(self._embedding, shared=True))
        return self._counted(linear(self._source.tensor("lm_head.weight", config.vocab_size, config.hidden_size)))

    def _vector(self, name: str, *shape: int) -> Tensor:
        tensor = self._source.tensor(name, *shape)
        self._num_bytes += tensor.nbytes
        return tensor

    def _merged(self, outputs: dict[str, int], inputs: int, *, bias: bool) -> Linear:
        """One layer of the projections in `outputs` (name: rows), in that order."""
        tensor = self._source.tensor
        weight = _joined([tensor(f"{name}.weight", rows, inputs) for name, rows in outputs.items()])
        biases = _joined([tensor(f"{name}.bias", rows) for name, rows in outputs.items()]) if bias else None
        return self._counted(self._format.projection(weight, biases))

    def _counted(self, layer: Linear) -> Linear:
        self._num_bytes += layer.num_bytes
        return layer


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
