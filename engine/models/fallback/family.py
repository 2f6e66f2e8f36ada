"""Decoders that have no module of their own: transformers' model, with our attention, cache and scheduling."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.models.fallback.attention import IMPLEMENTATION, CurrentStep, PagedLayer, install, register
from thothy_ai.engine.models.fallback.by_hand import attend_by
from thothy_ai.engine.models.fallback.decoder import TransformersDecoder, require_head
from thothy_ai.engine.models.fallback.dry_run import LayerAttention, attention_of
from thothy_ai.engine.models.fallback.loading import loaded_from, made_on
from thothy_ai.engine.models.fallback.refusals import context_of, model_class
from thothy_ai.engine.models.fallback.self_check import SelfCheck
from thothy_ai.engine.models.rope import Rope

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

    from thothy_ai.engine.models.builder import ModelBuilder
    from thothy_ai.engine.models.family import Windows

log = logging.getLogger(__name__)

_INNER_SIZES = ("moe_intermediate_size", "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
_META = torch.device("meta")


@dataclass(frozen=True, slots=True, eq=False)
class ThroughTransformers:
    """A configuration of transformers, and what the attention of its layers did in a dry run.

    `modules` are the names of the attention modules. `container` is the multimodal architecture whose text part this
    is.
    """

    config: PreTrainedConfig
    layers: tuple[LayerAttention, ...]
    modules: tuple[str, ...]
    max_context: int
    container: str | None = None

    @classmethod
    def read(cls, config: PreTrainedConfig, container: str | None = None) -> Self:
        """UnsupportedModelError names what paged attention does not implement."""
        try:
            model_class(config)
            context = context_of(config)
            model = made_on(_META, config, torch.float32)
            require_head(model)
            attention = attention_of(model, context)
        except UnsupportedModelError as error:
            raise UnsupportedModelError(f"architecture {config.model_type!r}: {error}") from error
        return cls(config, tuple(attention.values()), tuple(attention), context, container)

    @property
    def windows(self) -> Windows:
        return tuple(layer.params.window for layer in self.layers)

    @property
    def width(self) -> int:
        """The size of heads in the cache, even: keys and values are as long as the longer of them."""
        longest = max(self.layers[0].key_dim, self.layers[0].value_dim)
        return longest + longest % 2

    @property
    def inner_size(self) -> int:
        """How wide a token's MLP is, in all its experts together; an estimate, for memory and shares of time."""
        config = self.config
        sizes = (getattr(config, name, None) for name in _INNER_SIZES)
        inner = next((size for size in sizes if isinstance(size, int)), 4 * int(config.hidden_size))
        experts = getattr(config, "num_experts_per_tok", None)
        shared = getattr(config, "shared_intermediate_size", None) or 0  # or of the MLP beside no experts
        return (inner * experts if isinstance(experts, int) else inner) + shared

    def model_config(self, eos_token_ids: tuple[int, ...]) -> ModelConfig:
        """The configuration of a model of this architecture; heads are those that its attention modules have."""
        return ModelConfig(
            family=self.config.model_type,
            architecture=self,
            mlp_sizes=(self.inner_size,) * len(self.layers),
            vocab_size=self.config.vocab_size,
            hidden_size=self.config.hidden_size,
            intermediate_size=self.inner_size,
            num_layers=len(self.layers),
            stored_layers=len(self.layers),
            num_heads=self.layers[0].num_heads,
            num_kv_heads=self.layers[0].num_kv_heads,
            head_dim=self.width,
            norm_eps=0.0,  # transformers' layers have theirs, and rotary embedding too
            rope=Rope(()),
            tied_embeddings=False,  # as far as weights are concerned: transformers shares them
            max_context=self.max_context,
            eos_token_ids=eos_token_ids,
            container=self.container,
            needs_flex=any(layer.params.slopes is not None for layer in self.layers),
        )

    def build(self, build: ModelBuilder) -> TransformersDecoder:
        """The decoder, its weights read by transformers. UnsupportedModelError if it would mix sequences."""
        source, kind = build.source, self.config.model_type
        if build.ranks is not None:
            raise UnsupportedModelError(f"{kind} runs through transformers, on one device only")
        if build.converts:
            raise UnsupportedModelError(f"{kind} runs through transformers, in its own type only")
        if source.folder is None:
            model = made_on(source.device, self.config, source.dtype)
        else:
            model = loaded_from(source.folder, source.device, self.config, source.dtype, self.container)
        decoder = TransformersDecoder(model, self._connect(model, build))
        if source.device == _META:
            for name, parameter in model.named_parameters():
                build.vector(name, *parameter.shape)
            return decoder
        for tensor in (*model.parameters(), *model.buffers()):
            build.held(tensor)
        check = SelfCheck(decoder, self.layers, self.width, build.operations)
        check.require_independent_tokens(kind)
        decoder.captures = check.captures()
        graphs = "with" if decoder.captures else "without"
        log.warning("%s runs through transformers, %s CUDA graphs: slower than a family of this engine", kind, graphs)
        return decoder

    def _connect(self, model: PreTrainedModel, build: ModelBuilder) -> CurrentStep:
        """Have the model's attention modules use the paged cache; returns where they look for the step."""
        register()
        step = CurrentStep()
        for index, (name, layer) in enumerate(zip(self.modules, self.layers, strict=True)):
            params = layer.params.within(build.shape.max_context)
            paged = PagedLayer(index, layer.num_heads, layer.value_dim, self.width, params, step, build.operations)
            install(model.get_submodule(name), paged)
        attend_by(model, IMPLEMENTATION)
        return step
