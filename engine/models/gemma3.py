"""Gemma 3 (text): norms around each block, normalized queries and keys, GeGLU, local layers with their own positions.

Most layers see a sliding window and have another rotary embedding than the few that see everything. As in Gemma 2,
norms multiply by 1 + w, computed and kept in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.family import require_activation
from thothy_ai.engine.models.gemma2 import Gemma2, one_plus, query_scalar
from thothy_ai.engine.models.gguf_names import (
    GGUF_ATTENTION,
    GGUF_GATED_MLP,
    GGUF_QK_NORMS,
    GGUF_SANDWICH_NORMS,
    GGUFNames,
)
from thothy_ai.engine.models.layers.attention import SelfAttention
from thothy_ai.kernels.rotary import QKNorm

_LAYERS_OF_27B = 62


def _derived(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fields that a GGUF file lacks, by llama.cpp's rules: by default, every sixth layer has no window."""
    local = {"rope_type": "default", "rope_theta": fields["rope_local_base_freq"]}
    return {
        "query_pre_attn_scalar": query_scalar(fields, _LAYERS_OF_27B),
        "rope_parameters": {"full_attention": fields["rope_parameters"], "sliding_attention": local},
    }


class Gemma3(Gemma2):
    """A Gemma 2 with norms of queries and keys, and with other rotary frequencies in layers with a window."""

    model_type: ClassVar[str] = "gemma3_text"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "gemma3",
        {**GGUF_SANDWICH_NORMS, **GGUF_QK_NORMS, **GGUF_ATTENTION, **GGUF_GATED_MLP},
        one_plus=True,
        windows_in_some=True,
        settings={"sliding_window": ".attention.sliding_window"},
        defaults={"rope_local_base_freq": (".rope.freq_base_swa", 10_000.0)},
        derived=_derived,
    )

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_activation, "gelu_pytorch_tanh")
        if config.attn_logit_softcapping is not None:  # transformers' own Gemma 3 ignores it
            raise UnsupportedModelError("attn_logit_softcapping is not implemented in Gemma 3")
        return cls._read(config)

    def _attention(self, build: ModelBuilder, prefix: str, index: int) -> SelfAttention:
        params, size = self.attention[index], build.shape.head_dim
        qkv = build.qkv(prefix, bias=self.attention_bias)
        output = build.attention_output(prefix, bias=self.attention_bias)
        rotary = build.rotary if params.window is None else build.local_rotary
        norms = QKNorm(one_plus(build, prefix + "q_norm", size), one_plus(build, prefix + "k_norm", size))
        return build.attention(qkv, output, rotary, params, qk_norm=norms)
