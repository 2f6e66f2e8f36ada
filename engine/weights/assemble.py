"""From named tensors to a `Model`: which tensor goes where, and which are merged."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from thothy_ai.engine.device import operations_for
from thothy_ai.engine.linear import Linear, linear
from thothy_ai.engine.model_config import ModelConfig
from thothy_ai.engine.models.decoder import Layer, LinearInputs, Model
from thothy_ai.kernels.rope import QKNorm, rotary_table


class TensorSource(Protocol):
    """Tensors under the names that transformers saves them by, on their device and in their type already."""

    def tensor(self, name: str, *shape: int) -> Tensor:
        """The tensor, which must have `shape`; ModelLoadError otherwise."""
        ...


def assemble(config: ModelConfig, source: TensorSource) -> Model:
    """The model of `config` with the source's weights."""
    return _Assembly(config, source).model()


class _Assembly:
    def __init__(self, config: ModelConfig, source: TensorSource) -> None:
        self._config, self._source = config, source
        self._num_bytes = 0

    def model(self) -> Model:
        config = self._config
        embedding = self._vector("model.embed_tokens.weight", config.vocab_size, config.hidden_size)
        layers = tuple(self._layer(f"model.layers.{index}.") for index in range(config.num_layers))
        norm = self._vector("model.norm.weight", config.hidden_size)
        head = self._head(embedding)
        rotary = rotary_table(
            config.rope.inverse_frequencies, config.rope.scaling, config.max_context, embedding.device
        )
        operations = operations_for(embedding.device)
        return Model(
            config, embedding, layers, norm, head, rotary, self._num_bytes, operations, LinearInputs.plain(operations)
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

    def _head(self, embedding: Tensor) -> Linear:
        config = self._config
        if not config.tied_embeddings:
            return self._merged({"lm_head": config.vocab_size}, config.hidden_size, bias=False)
        return self._counted(linear(embedding, shared=True))

    def _vector(self, name: str, *shape: int) -> Tensor:
        tensor = self._source.tensor(name, *shape)
        self._num_bytes += tensor.nbytes
        return tensor

    def _merged(self, outputs: dict[str, int], inputs: int, *, bias: bool) -> Linear:
        """One layer of the projections in `outputs` (name: rows), in that order."""
        tensor = self._source.tensor
        weight = _joined([tensor(f"{name}.weight", rows, inputs) for name, rows in outputs.items()])
        biases = _joined([tensor(f"{name}.bias", rows) for name, rows in outputs.items()]) if bias else None
        return self._counted(linear(weight, biases))

    def _counted(self, layer: Linear) -> Linear:
        self._num_bytes += layer.num_bytes
        return layer


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
