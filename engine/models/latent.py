"""Reads the sizes of multi-head latent attention from a configuration, and builds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.family import require_full_rotary, size_of
from thothy_ai.engine.models.layers.latent_attention import LatentAttention
from thothy_ai.engine.models.layers.norm import RMSNorm
from thothy_ai.engine.models.rope_scaling import magnitude
from thothy_ai.engine.models.shape import LatentSizes
from thothy_ai.kernels.paged import AttentionParams

_EPS = 1e-6  # of the norms of latents and of compressed queries, whatever the configuration's epsilon is


@dataclass(frozen=True, slots=True)
class LatentSettings:
    """`scale`: the factor of scores. `bias`: whether compressing projections and the output projection have a bias."""

    sizes: LatentSizes
    scale: float
    interleaved: bool
    bias: bool

    @classmethod
    def read(cls, config: Configuration, *, interleaved: bool) -> Self:
        """ModelLoadError for invalid sizes, UnsupportedModelError for unimplemented settings."""
        require_full_rotary(config)
        sizes = LatentSizes(
            rank=size_of(config, "kv_lora_rank"),
            rotary=size_of(config, "qk_rope_head_dim"),
            plain=size_of(config, "qk_nope_head_dim"),
            value=size_of(config, "v_head_dim"),
            query_rank=None if config.q_lora_rank is None else size_of(config, "q_lora_rank"),
        )
        heads, pairs = config.num_attention_heads, config.num_key_value_heads
        if pairs != heads:
            raise UnsupportedModelError(f"latent attention has keys for each of {heads} heads, not for {pairs}")
        scale, rope = sizes.query**-0.5, config.rope_parameters
        if rope.get("rope_type", "default") != "default" and rope.get("mscale_all_dim"):
            scale *= magnitude(rope["factor"], rope["mscale_all_dim"]) ** 2
        return cls(sizes, scale, interleaved, config.attention_bias)

    def build(self, build: ModelBuilder, prefix: str) -> LatentAttention:
        """The attention of a layer, with this rank's heads."""
        hidden, heads, sizes = build.shape.hidden_size, build.shape.num_heads, self.sizes
        outputs, query_norm, inputs, name = {prefix + "kv_a_proj_with_mqa": sizes.kept.size}, None, hidden, "q_proj"
        if sizes.query_rank is not None:
            outputs = {prefix + "q_a_proj": sizes.query_rank, **outputs}
            query_norm = RMSNorm(build.vector(prefix + "q_a_layernorm.weight", sizes.query_rank), _EPS)
            inputs, name = sizes.query_rank, "q_b_proj"
        keys, values = build.expansions(prefix + "kv_b_proj", sizes)
        return LatentAttention(
            compress=build.linear(outputs, hidden, bias=self.bias),
            query_norm=query_norm,
            queries=build.column_parallel({prefix + name: heads * sizes.query}, inputs, sizes.query),
            latent_norm=RMSNorm(build.vector(prefix + "kv_a_layernorm.weight", sizes.rank), _EPS),
            keys=keys,
            values=values,
            output=build.row_parallel({prefix + "o_proj": hidden}, heads * sizes.value, bias=self.bias),
            rotary=build.rotary,
            interleaved=self.interleaved,
            params=AttentionParams(scale=self.scale),
        )
