"""LFM2: gated convolutions over three tokens in most layers, attention with normalized queries and keys in the others.

In checkpoints, the final norm is named like an embedding's norm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.family import Windows, layer_states, require_full_rotary, same_window
from thothy_ai.engine.models.gguf_delta_net import taps
from thothy_ai.engine.models.gguf_names import GGUFNames
from thothy_ai.engine.models.layers.attention import SelfAttention
from thothy_ai.engine.models.layers.blocks import PreNormLayer
from thothy_ai.engine.models.layers.embedding import LinearHead
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.engine.models.layers.recurrence import ShortConvolution
from thothy_ai.engine.models.shape import States
from thothy_ai.kernels.rotary import QKNorm
from thothy_ai.kernels.states import StateShape


@dataclass(frozen=True, slots=True)
class Lfm2:
    """`width`: of the convolutions. `inner`: the inner size of the MLPs."""

    model_type: ClassVar[str] = "lfm2"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "lfm2",
        {
            "attn_norm": "operator_norm",
            "ffn_norm": "ffn_norm",
            "attn_q": "self_attn.q_proj",
            "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj",
            "attn_output": "self_attn.out_proj",
            "attn_q_norm": "self_attn.q_layernorm",
            "attn_k_norm": "self_attn.k_layernorm",
            "shortconv.conv": "conv.conv",
            "shortconv.in_proj": "conv.in_proj",
            "shortconv.out_proj": "conv.out_proj",
            "ffn_gate": "feed_forward.w1",
            "ffn_up": "feed_forward.w3",
            "ffn_down": "feed_forward.w2",
        },
        changed={"shortconv.conv.weight": taps},
        top={"token_embd_norm": "model.embedding_norm"},
        by_layer=lambda heads: {"layer_types": ["full_attention" if each else "conv" for each in heads]},
        norm_eps=("norm_eps", ".attention.layer_norm_rms_epsilon"),
        settings={"conv_L_cache": ".shortconv.l_cache"},
        present={"conv_bias": "shortconv.in_proj.bias"},
        derived=lambda _: {"block_auto_adjust_ff_dim": False},
    )

    windows: Windows
    states: States
    width: int
    bias: bool
    inner: int

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_full_rotary(config)
        width = config.conv_L_cache
        if not isinstance(width, int) or isinstance(width, bool) or width < 2:
            raise ModelLoadError(f"conv_L_cache is {width!r}")
        inner = config.intermediate_size
        if config.block_auto_adjust_ff_dim:  # two thirds of the configured size, times a factor, rounded up
            inner, multiple = int(2 * inner / 3), config.block_multiple_of
            if config.block_ffn_dim_multiplier is not None:
                inner = multiple * -(-int(config.block_ffn_dim_multiplier * inner) // multiple)
        return cls(
            windows=same_window(config),
            states=layer_states(config, "conv", StateShape(config.hidden_size, width - 1)),
            width=width,
            bias=config.conv_bias,
            inner=inner,
        )

    @property
    def mlp_sizes(self) -> tuple[int, ...]:
        return (self.inner,) * len(self.states)

    def build(self, build: ModelBuilder) -> Decoder:
        return Decoder(
            embedding=build.token_embedding(),
            layers=build.layers(self.layer),
            norm=build.plain_norm("model.embedding_norm"),
            head=LinearHead(build.head()),
            ends_with_attention=self.states[-1] is None,
        )

    def layer(self, build: ModelBuilder, prefix: str, index: int) -> PreNormLayer:
        hidden, mlp = build.shape.hidden_size, prefix + "feed_forward."
        mixer: SelfAttention | ShortConvolution
        if self.states[index] is None:
            heads, size = prefix + "self_attn.", build.shape.head_dim
            first = build.qkv(heads)
            output = build.linear({heads + "out_proj": hidden}, build.shape.num_heads * size)
            norms = QKNorm(*(build.vector(f"{heads}{name}_layernorm.weight", size) for name in "qk"))
            mixer = build.attention(first, output, build.rotary, qk_norm=norms)
        else:
            mixer = self._convolution(build, prefix + "conv.")
            first = mixer.projection
        gate_up = build.linear({mlp + "w1": self.inner, mlp + "w3": self.inner}, hidden)
        return PreNormLayer(
            attention_norm=build.add_norm(prefix + "operator_norm", before=first),
            attention=mixer,
            mlp_norm=build.add_norm(prefix + "ffn_norm", before=gate_up),
            mlp=SwiGLU(gate_up, build.linear({mlp + "w2": hidden}, self.inner)),
        )

    def _convolution(self, build: ModelBuilder, prefix: str) -> ShortConvolution:
        hidden = build.shape.hidden_size
        return ShortConvolution(
            projection=build.linear({prefix + "in_proj": 3 * hidden}, hidden, bias=self.bias),
            convolution=build.taps(prefix + "conv", hidden, self.width, bias=self.bias, silu=False),
            output=build.linear({prefix + "out_proj": hidden}, hidden, bias=self.bias),
        )
