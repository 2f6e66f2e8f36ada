"""DeepSeek-V2: latent attention; plain MLPs in the first layers, then experts, scored by softmax, and shared ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.experts import ExpertNames, ExpertSizes
from thothy_ai.engine.models.family import Windows, require_activation, same_window, size_of
from thothy_ai.engine.models.gguf_latent import gguf_latent
from thothy_ai.engine.models.gguf_names import GGUFNames
from thothy_ai.engine.models.latent import LatentSettings
from thothy_ai.engine.models.layers.experts import DenseBlock, SparseBlock, SparseLayer
from thothy_ai.engine.models.layers.mlp import SwiGLU
from thothy_ai.engine.models.layers.norm import AddRMSNorm
from thothy_ai.engine.models.shape import LatentSizes
from thothy_ai.kernels.experts import Routing


@dataclass(frozen=True, slots=True)
class DeepseekV2:
    """`dense`: for each layer, whether it has an MLP instead of experts."""

    model_type: ClassVar[str] = "deepseek_v2"
    gguf: ClassVar[GGUFNames | None] = gguf_latent(corrected=False)
    corrected: ClassVar[bool] = False  # whether a correction is added to scores for the choice

    windows: Windows
    attention: LatentSettings
    dense: tuple[bool, ...]
    experts: ExpertSizes
    routing: Routing

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_said(config, "scoring_func", "softmax")
        require_said(config, "norm_topk_prob", False, None)  # transformers does not compute it
        require_said(config, "mlp_bias", False)
        return cls.with_experts(config, first_dense(config), _routing(config), interleaved=True)

    @classmethod
    def with_experts(
        cls, config: Configuration, dense: tuple[bool, ...], routing: Routing, *, interleaved: bool
    ) -> Self:
        """The family with the fields common to all configurations of latents and experts, and this routing."""
        require_activation(config.hidden_act, "silu")
        require_said(config, "moe_layer_freq", 1)
        inner = size_of(config, "moe_intermediate_size")
        return cls(
            windows=same_window(config),
            attention=LatentSettings.read(config, interleaved=interleaved),
            dense=dense,
            experts=ExpertSizes(
                config.n_routed_experts,
                config.num_experts_per_tok,
                inner,
                dense.count(False),
                shared=inner * size_of(config, "n_shared_experts"),
            ),
            routing=routing,
        )

    @property
    def latent_sizes(self) -> LatentSizes:
        return self.attention.sizes

    def build(self, build: ModelBuilder) -> Decoder:
        return build.decoder(self.layer)

    def layer(self, build: ModelBuilder, prefix: str, index: int) -> SparseLayer:
        attention = self.attention.build(build, prefix + "self_attn.")
        norm = build.vector(prefix + "input_layernorm.weight", build.shape.hidden_size)
        if self.dense[index]:
            feed_forward: DenseBlock | SparseBlock = build.dense_block(prefix)
        else:
            mlp, sizes = prefix + "mlp.", self.experts
            shared, correction = mlp + "shared_experts.", mlp + "gate.e_score_correction_bias"
            feed_forward = SparseBlock(
                norm=build.plain_norm(prefix + "post_attention_layernorm"),
                router=build.router(
                    mlp + "gate", sizes.count, self.routing, correction=correction if self.corrected else None
                ),
                experts=build.experts(ExpertNames(mlp + "experts.", mlp + "experts."), sizes),
                shared=SwiGLU(build.gate_up(shared, inner=sizes.shared), build.down(shared, inner=sizes.shared)),
            )
        return SparseLayer(AddRMSNorm(norm, build.shape.norm_eps, attention.takes_fp8), attention, feed_forward)


def first_dense(config: Configuration) -> tuple[bool, ...]:
    """For each layer, whether it is one of the first ones, which have an MLP."""
    dense = size_of(config, "first_k_dense_replace", least=0)
    return tuple(index < dense for index in range(config.num_hidden_layers))


def require_said(config: Configuration, name: str, *values: object) -> None:
    """UnsupportedModelError if the configuration has this field with any other value."""
    if (said := getattr(config, name, values[0])) not in values:
        raise UnsupportedModelError(f"{name} {said!r} is not implemented in this family")


def _routing(config: Configuration) -> Routing:
    """Routing by softmax, among all experts or the best groups; UnsupportedModelError if groups do not divide them."""
    require_said(config, "topk_method", "greedy", "group_limited_greedy")
    groups, kept = 1, 1
    if config.topk_method == "group_limited_greedy":
        groups, kept = size_of(config, "n_group"), size_of(config, "topk_group")
    experts, chosen = size_of(config, "n_routed_experts"), size_of(config, "num_experts_per_tok")
    if experts % groups or kept > groups or chosen > experts // groups * kept:
        raise UnsupportedModelError(f"{experts} experts in {groups} groups, of which {kept} are kept, do not divide")
    scale = config.routed_scaling_factor
    return Routing(chosen, renormalized=False, scale=scale, groups=groups, kept_groups=kept, best=1)
