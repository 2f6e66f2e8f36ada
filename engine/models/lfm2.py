"""LFM2: gated convolutions over three tokens in most layers, attention with normalized queries and keys in the others.

The final norm has the name of an embedding's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.family import Windows, require_full_rotary, same_window
from thothy_ai.engine.models.gguf_names import GGUFNames
from thothy_ai.engine.models.layers.attention import SelfAttention
from thothy_ai.engine.models.layers.blocks import PreNormLayer
from thothy_ai.engine.models.layers.embedding import LinearHead, TokenEmbedding
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.engine.models.layers.recurrence import ShortConvolution
from thothy_ai.engine.models.shape import States
from thothy_ai.kernels.rotary import QKNorm
from thothy_ai.kernels.states import StateShape


@dataclass(frozen=True, slots=True)
class Lfm2:
    """`width` is that of the convolutions, `inner` that of the MLPs."""

    model_type: ClassVar[str] = "lfm2"
    gguf: ClassVar[GGUFNames | None] = None

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
        state = StateShape(config.hidden_size, width - 1)
        return cls(
            windows=same_window(config),
            states=tuple(state if kind == "conv" else None for kind in config.layer_types),
            width=width,
            bias=config.conv_bias,
            inner=_inner(config),
        )

    def build(self, build: ModelBuilder) -> Decoder:
        return Decoder(
            embedding=TokenEmbedding(build.embedding),
            layers=build.layers(self.layer),
            norm=build.plain_norm("model.embedding_norm"),
            head=LinearHead(build.head()),
            ends_with_attention=self.states[-1] is None,
        )

    def layer(self, build: ModelBuilder, prefix: str, index: int) -> PreNormLayer:
        hidden, mlp = build.shape.hidden_size, prefix + "feed_forward."
        mixer: SelfAttention | ShortConvolution
        if self.states[index] is None:
            mixer = self._attention(build, prefix + "self_attn.")
            first = mixer.qkv
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

    def _attention(self, build: ModelBuilder, prefix: str) -> SelfAttention:
        shape = build.shape
        norms = QKNorm(*(build.vector(f"{prefix}{name}_layernorm.weight", shape.head_dim) for name in "qk"))
        output = build.linear({prefix + "out_proj": shape.hidden_size}, shape.num_heads * shape.head_dim)
        return build.attention(build.qkv(prefix), output, build.rotary, qk_norm=norms)

    def _convolution(self, build: ModelBuilder, prefix: str) -> ShortConvolution:
        hidden = build.shape.hidden_size
        return ShortConvolution(
            projection=build.linear({prefix + "in_proj": 3 * hidden}, hidden, bias=self.bias),
            convolution=build.taps(prefix + "conv", hidden, self.width, bias=self.bias, silu=False),
            output=build.linear({prefix + "out_proj": hidden}, hidden, bias=self.bias),
        )


def _inner(config: Configuration) -> int:
    """The size of an MLP: two thirds of what the configuration says, times a factor, rounded up, unless it is exact."""
    size: int = config.intermediate_size
    if not config.block_auto_adjust_ff_dim:
        return size
    size, multiple = int(2 * size / 3), config.block_multiple_of
    if config.block_ffn_dim_multiplier is not None:
        size = multiple * -(-int(config.block_ffn_dim_multiplier * size) // multiple)
    return size
