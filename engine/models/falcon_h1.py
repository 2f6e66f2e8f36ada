"""Falcon-H1: in every layer, a state space and attention side by side, then an MLP; multipliers everywhere.

A layer becomes two here, since it has two memories: the first has the recurrence; the second has attention, adds the
first one's result, and continues with the MLP. Multipliers of inputs are folded into norms, and the multiplier of keys
into the scale of scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder, DecoderLayer
from thothy_ai.engine.models.family import Windows, require_activation, require_full_rotary
from thothy_ai.engine.models.gguf_names import GGUF_ATTENTION, GGUFNames
from thothy_ai.engine.models.gguf_state_space import (
    GGUF_SPACE_CHANGES,
    GGUF_SPACE_SETTINGS,
    gguf_space,
    gguf_space_gates,
)
from thothy_ai.engine.models.layers.attention import LayerContext, SelfAttention
from thothy_ai.engine.models.layers.embedding import LinearHead
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.engine.models.layers.norm import AddRMSNorm, FinalNorm, RMSNorm
from thothy_ai.engine.models.layers.recurrence import StateSpace
from thothy_ai.engine.models.shape import States
from thothy_ai.engine.models.state_space import SpaceSizes
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import AttentionParams

_MULTIPLIERS = ("embedding", "lm_head", "key", "attention_in", "attention_out", "ssm_in", "ssm_out")


@dataclass(frozen=True, slots=True)
class SpaceHalf:
    """Computes factor * space(norm(x)), which the other half adds."""

    norm: AddRMSNorm
    space: StateSpace
    factor: float

    def attend(self, update: Tensor, residual: Tensor, context: LayerContext) -> Tensor:
        return self.space(self.norm(update, residual, context.operations), context)

    def finish(self, mixed: Tensor, _residual: Tensor, operations: Operations) -> Tensor:
        return self.space.project(mixed, operations).mul_(self.factor)


@dataclass(frozen=True, slots=True)
class AttentionHalf:
    """x += factor * attention(norm(x)) + update; x += mlp_factor * mlp(norm(x))."""

    norm: RMSNorm
    attention: SelfAttention
    factor: float
    mlp_norm: AddRMSNorm
    mlp: SwiGLU
    mlp_factor: float

    def attend(self, update: Tensor, residual: Tensor, context: LayerContext) -> Tensor:
        """Attend, and append the other half's update to the results."""
        attended = self.attention(self.norm(residual, context.operations), context)
        return torch.cat((attended, update), dim=1)

    def finish(self, attended: Tensor, residual: Tensor, operations: Operations) -> Tensor:
        attended, update = attended.split((attended.shape[1] - residual.shape[1], residual.shape[1]), dim=1)
        update = update.add(self.attention.project(attended, operations), alpha=self.factor)
        hidden = self.mlp_norm(update, residual, operations)
        return self.mlp(hidden, operations).mul_(self.mlp_factor)


@dataclass(frozen=True, slots=True)
class FalconH1:
    """`factors`: the scalar multipliers by name. `of_space`: multipliers of a state space's gates, values, keys,
    queries and steps. `of_mlp`: multipliers of an MLP's gates and results.
    """

    model_type: ClassVar[str] = "falcon_h1"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "falcon-h1",
        {
            "attn_norm": "input_layernorm",
            "ffn_gate": "feed_forward.gate_proj",
            "ffn_up": "feed_forward.up_proj",
            "ffn_down": "feed_forward.down_proj",
            **GGUF_ATTENTION,
            **gguf_space("mamba"),
        },
        whole={"ffn_norm": "pre_ff_layernorm.weight", **gguf_space_gates("mamba")},
        changed=GGUF_SPACE_CHANGES,
        top={"output_norm": "model.final_layernorm"},
        settings=GGUF_SPACE_SETTINGS,
        present={"mamba_rms_norm": "ssm_norm.weight", "mamba_conv_bias": "ssm_conv1d.bias"},
        derived=lambda fields: {
            "mamba_d_ssm": fields["_space_width"],
            "mamba_d_head": fields["_space_width"] // fields["mamba_n_heads"],
            "mamba_norm_before_gate": False,  # as llama.cpp computes; its converter has multiplied all weights
        },
    )

    windows: Windows
    states: States
    mlp_sizes: tuple[int, ...]
    space: SpaceSizes
    attention_bias: bool
    mlp_bias: bool
    factors: dict[str, float]
    of_space: tuple[float, ...]
    of_mlp: tuple[float, float]

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        factors = {name: float(getattr(config, f"{name}_multiplier")) for name in _MULTIPLIERS}
        of_mlp, layers = tuple(map(float, config.mlp_multipliers)), config.num_hidden_layers
        if config.mamba_rms_norm and config.mamba_norm_before_gate:
            raise UnsupportedModelError("mamba_norm_before_gate is not implemented")
        if config.mlp_bias and of_mlp[0] != 1.0:
            raise UnsupportedModelError("mlp_multipliers of MLPs with biases are not implemented")
        if not of_mlp[0] > 0:
            raise UnsupportedModelError(f"mlp_multipliers of {config.mlp_multipliers} are not implemented")
        norm_groups = config.mamba_n_groups if config.mamba_rms_norm else 0
        space = SpaceSizes.read(config, output_bias=config.projectors_bias, norm_groups=norm_groups)
        return cls(
            windows=(None,) * (2 * layers),
            states=(space.state, None) * layers,
            mlp_sizes=(config.intermediate_size,) * layers,
            space=space,
            attention_bias=config.attention_bias,
            mlp_bias=config.mlp_bias,
            factors=factors,
            of_space=tuple(map(float, config.ssm_multipliers)),
            of_mlp=(of_mlp[0], of_mlp[1]),
        )

    def build(self, build: ModelBuilder) -> Decoder:
        layers = build.layers(self.layer)
        norm = self._scaled(build, "model.final_layernorm", self.factors["lm_head"])
        return Decoder(
            embedding=build.token_embedding(self.factors["embedding"]),
            layers=layers,
            norm=FinalNorm(norm, build.shape.norm_eps),
            head=LinearHead(build.head()),
            ends_with_attention=False,
        )

    def layer(self, build: ModelBuilder, _prefix: str, index: int) -> DecoderLayer:
        prefix, eps, factors = f"model.layers.{index // 2}.", build.shape.norm_eps, self.factors
        if self.states[index] is not None:
            space = self.space.build(build, prefix + "mamba.", self._rows(build))
            norm = self._scaled(build, prefix + "input_layernorm", factors["ssm_in"])
            return SpaceHalf(AddRMSNorm(norm, eps, space.projection.takes_fp8), space, factors["ssm_out"])
        heads, mlp, bias = prefix + "self_attn.", prefix + "feed_forward.", self.attention_bias
        scale = factors["key"] * build.shape.head_dim**-0.5
        attention = build.attention(
            build.qkv(heads, bias=bias), build.attention_output(heads, bias=bias), build.rotary, AttentionParams(scale)
        )
        gate_up, (gate, down) = build.gate_up(mlp, bias=self.mlp_bias), self.of_mlp
        return AttentionHalf(
            norm=RMSNorm(self._scaled(build, prefix + "input_layernorm", factors["attention_in"]), eps),
            attention=attention,
            factor=factors["attention_out"],
            # Also of what gates are multiplied with: the results are divided by it.
            mlp_norm=AddRMSNorm(self._scaled(build, prefix + "pre_ff_layernorm", gate), eps, gate_up.takes_fp8),
            mlp=SwiGLU(gate_up, build.down(mlp, bias=self.mlp_bias)),
            mlp_factor=down / gate,
        )

    def _rows(self, build: ModelBuilder) -> Tensor:
        """The multiplier of each row of a space's projection."""
        space, keys = self.space, self.space.groups * self.space.keys
        sizes = (space.inner, space.inner, keys, keys, space.heads)
        rows = [each for factor, size in zip(self.of_space, sizes, strict=True) for each in [factor] * size]
        return build.held(torch.tensor(rows, device=build.embedding.device))

    @staticmethod
    def _scaled(build: ModelBuilder, name: str, factor: float) -> Tensor:
        """A norm's weight times a factor [hidden] float32."""
        return build.held(build.float32(f"{name}.weight", build.shape.hidden_size).mul_(factor))
