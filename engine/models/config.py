"""`ModelConfig`: a decoder's shape and its family, made once from a checkpoint's configuration.

A configuration that the engine would compute incorrectly is refused here, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.checkpoint.configuration import Configuration, token_ids
from thothy_ai.engine.models.experts import ExpertSizes
from thothy_ai.engine.models.family import (
    Architecture,
    ChunkedFamily,
    Family,
    LatentFamily,
    RecurrentFamily,
    SizedFamily,
    SparseFamily,
    UnevenFamily,
    require_layers,
)
from thothy_ai.engine.models.layer_groups import LayerGroups
from thothy_ai.engine.models.quantized.methods import quantization_of
from thothy_ai.engine.models.rope import extended_context, read_ropes
from thothy_ai.engine.models.shape import ModelShape

_SIZES = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "max_position_embeddings", "head_dim", "num_key_value_heads",
)  # fmt: skip
_OPTIONAL = {"num_key_value_heads", "head_dim", "intermediate_size"}
_EPS = ("rms_norm_eps", "layer_norm_eps", "norm_eps", "layer_norm_epsilon")  # a configuration has one of them


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(ModelShape):
    """A decoder's shape, the architecture that computes with it, and the tokens that end a generation.

    `family` is the `model_type` of the configuration, `container` the multimodal architecture whose text part this is.
    `mlp_sizes`: the inner sizes of all MLPs other than experts.
    """

    family: str
    architecture: Architecture
    mlp_sizes: tuple[int, ...]
    eos_token_ids: tuple[int, ...]
    experts: ExpertSizes | None = None
    num_unused_layers: int = 0  # after the last used one; they predict further tokens
    container: str | None = None
    stored_layers: int  # as the checkpoint counts them
    needs_flex: bool = False  # only FlexAttention computes some layer's attention
    chunked: bool = False  # windows are chunks

    @classmethod
    def of(cls, config: Configuration, family: type[Family], eos_token_ids: tuple[int, ...]) -> ModelConfig:
        """Raises ModelLoadError for invalid values, UnsupportedModelError for unimplemented ones."""
        for name in _SIZES:
            value = getattr(config, name, None)
            if value is None and name in _OPTIONAL:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ModelLoadError(f"{name} is {value!r}")
        heads = config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        if heads % kv_heads or head_dim % 2:
            raise ModelLoadError(f"{heads} heads over {kv_heads} KV heads of {head_dim} do not divide")
        quantization = quantization_of(config)
        architecture = family.read(config)
        states = architecture.states if isinstance(architecture, RecurrentFamily) else ()
        chunked = isinstance(architecture, ChunkedFamily)
        require_layers(config, architecture.windows, states, chunked=chunked)
        experts = architecture.experts if isinstance(architecture, SparseFamily) else None
        inner = getattr(config, "intermediate_size", None) or 0
        sparse = 0 if experts is None else experts.layers
        mlp_sizes = (inner,) * (config.num_hidden_layers - sparse)
        if isinstance(architecture, SizedFamily):
            mlp_sizes = architecture.mlp_sizes
        if 0 in mlp_sizes:
            raise ModelLoadError(f"intermediate_size is {getattr(config, 'intermediate_size', None)!r}")
        uneven = architecture if isinstance(architecture, UnevenFamily) else None
        of_uneven = () if uneven is None else zip(uneven.windows, uneven.kv_heads, strict=True)
        sizes = {window is None: heads.size for window, heads in of_uneven}
        latent = architecture.latent_sizes if isinstance(architecture, LatentFamily) else None
        if latent is not None:
            kv_heads, head_dim, sizes = *latent.kept[:2], {True: latent.rotary}
        rope, local_rope = read_ropes(config, sizes.get(True, head_dim), sizes.get(False, head_dim))
        return cls(
            family=config.model_type,
            architecture=architecture,
            mlp_sizes=mlp_sizes,
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=inner,
            num_layers=len(architecture.windows),
            stored_layers=config.num_hidden_layers,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            norm_eps=_norm_eps(config),
            rope=rope,
            local_rope=local_rope,
            tied_embeddings=config.tie_word_embeddings,
            max_context=extended_context(config),
            quantization=quantization,
            experts=experts,
            eos_token_ids=eos_token_ids,
            num_unused_layers=_further_layers(config),
            states=states,
            chunked=chunked,
            kv_heads=() if uneven is None else uneven.kv_heads,
            kv_sources=() if uneven is None else uneven.kv_sources,
            latent=latent,
        ).within(None)

    @property
    def active_inner(self) -> int:
        """The inner sizes of the MLPs that a token goes through, added up over all layers."""
        sparse = 0 if self.experts is None else self.experts.layers * self.experts.active_inner
        return sum(self.mlp_sizes) + sparse

    @property
    def widest_inner(self) -> int:
        """The largest inner size of a layer, summed over the experts that a token goes to."""
        return max((0 if self.experts is None else self.experts.active_inner, *self.mlp_sizes))

    @property
    def unused(self) -> tuple[str, ...]:
        """Name prefixes of tensors that a checkpoint may have but that are not read: those of layers that predict
        further tokens, and of keys and values in layers that read another layer's.
        """
        further = ("mtp.",) if self.recurrent else ()
        shared = (index for index, source in enumerate(self.kv_sources) if source != index)
        pairs = (f"model.layers.{index}.self_attn.{kind}_" for index in shared for kind in "kv")
        unused = (f"model.layers.{self.stored_layers + index}." for index in range(self.num_unused_layers))
        return (*further, *pairs, *unused)

    @property
    def layer_groups(self) -> LayerGroups:
        """The groups of layers that share blocks. A model with states has one group, since prefixes end at states."""
        if self.recurrent:
            return LayerGroups.single(self.kept)
        seen = [self.max_context if window is None else window for window in self.architecture.windows]
        for index, source in enumerate(self.kv_sources):
            seen[source] = max(seen[source], seen[index])
        return LayerGroups.of(self.kept, seen, self.max_context)

    def shared_by(self, ranks: int) -> ModelConfig:
        """The sizes of one rank's share; UnsupportedModelError, with the numbers, if sizes do not divide by `ranks`."""
        if ranks == 1:
            return self
        where = f"{ranks} devices cannot share this model"
        if self.recurrent:
            raise UnsupportedModelError(f"{where}: layers with recurrent states are not divided")
        pairs = {self.num_kv_heads, *(heads.number for heads in self.kv_heads)}
        if self.num_heads % ranks or any(each % ranks and ranks % each for each in pairs):
            kv_heads = " or ".join(map(str, sorted(pairs)))
            raise UnsupportedModelError(f"{where}: it has {self.num_heads} heads and {kv_heads} KV heads")
        experts = self.experts
        inner = {*self.mlp_sizes, *((experts.inner, experts.shared) if experts is not None else ())}
        if uneven := [size for size in sorted(inner) if size % ranks]:
            raise UnsupportedModelError(f"{where}: an inner size of {uneven[0]} does not divide by {ranks}")
        if experts is not None:
            experts = replace(experts, inner=experts.inner // ranks, shared=experts.shared // ranks)
        return replace(
            self,
            num_heads=self.num_heads // ranks,
            num_kv_heads=max(1, self.num_kv_heads // ranks),
            kv_heads=tuple(heads._replace(number=max(1, heads.number // ranks)) for heads in self.kv_heads),
            intermediate_size=self.intermediate_size // ranks,
            mlp_sizes=tuple(size // ranks for size in self.mlp_sizes),
            experts=experts,
        )

    def within(self, context: int | None) -> ModelConfig:
        """The configuration for contexts of at most `context` tokens, with the rotary frequencies for that length."""
        served = self.max_context if context is None else min(self.max_context, context)
        local = None if self.local_rope is None else self.local_rope.within(served)
        return replace(self, max_context=served, rope=self.rope.within(served), local_rope=local)

    def ending_with(self, where: Path, token_id: int | None) -> ModelConfig:
        """The configuration with the tokenizer's end-of-text token added; ModelLoadError if there is none at all."""
        named = (*self.eos_token_ids, *token_ids(token_id))
        ends = tuple(dict.fromkeys(each for each in named if 0 <= each < self.vocab_size))
        if not ends:
            raise ModelLoadError(
                f"{where}: no end-of-text token is known: config.json, generation_config.json and the tokenizer name "
                f"{', '.join(map(str, named)) or 'none'}, and the vocabulary has {self.vocab_size} tokens"
            )
        return replace(self, eos_token_ids=ends)


def _further_layers(config: Configuration) -> int:
    """The number of layers that predict further tokens, under either name used by configurations."""
    return int(getattr(config, "num_mtp_layers", 0) or getattr(config, "num_nextn_predict_layers", 0) or 0)


def _norm_eps(config: Configuration) -> float:
    name = next(name for name in _EPS if hasattr(config, name))
    eps = getattr(config, name)
    if not isinstance(eps, float) or not 0 < eps < 1:
        raise ModelLoadError(f"{name} is {eps!r}")
    return eps
