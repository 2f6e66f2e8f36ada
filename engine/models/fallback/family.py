"""Decoders that have no module of their own: transformers' model, with our attention, cache and scheduling."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import nn

from thothy_ai.engine.errors import ModelLoadError, UnsupportedModelError, one_line
from thothy_ai.engine.models.fallback.attention import IMPLEMENTATION, CurrentStep, PagedLayer, install, register
from thothy_ai.engine.models.fallback.decoder import TransformersDecoder, require_head
from thothy_ai.engine.models.fallback.dry_run import DryRun, LayerAttention
from thothy_ai.engine.models.fallback.refusals import context_of, model_class
from thothy_ai.engine.models.fallback.self_check import require_independent_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

    from thothy_ai.engine.models.builder import ModelBuilder
    from thothy_ai.engine.models.family import GGUFNames

log = logging.getLogger(__name__)

_EXPERTS = "batched_mm"  # the form of experts that counts no tokens, thus runs without storage


@dataclass(frozen=True, slots=True, eq=False)
class ThroughTransformers:
    """A configuration that transformers knows, and what its attention modules were seen to do, in order."""

    model_type: ClassVar[str] = ""  # any
    gguf: ClassVar[GGUFNames | None] = None

    config: PreTrainedConfig
    layers: tuple[LayerAttention, ...]
    max_context: int

    @classmethod
    def read(cls, config: PreTrainedConfig) -> Self:
        """From transformers' configuration; UnsupportedModelError, naming what it is that paged attention lacks."""
        kind, context = model_class(config), context_of(config)
        try:
            layers = _dry_run(_on_meta(kind, config, torch.float32), context)
        except UnsupportedModelError as error:
            raise UnsupportedModelError(f"architecture {config.model_type!r}: {error}") from error
        return cls(config, tuple(layers.values()), context)

    @property
    def width(self) -> int:
        """The size of heads in the cache, even: keys and values are as long as the longer of them."""
        longest = max(self.layers[0].key_dim, self.layers[0].value_dim)
        return longest + longest % 2

    def build(self, build: ModelBuilder) -> TransformersDecoder:
        """The decoder, its weights read by transformers, whose names and conversions they have."""
        if build.converts:
            raise UnsupportedModelError(f"{self.config.model_type}: runs through transformers, in its own type only")
        skeleton = _on_meta(model_class(self.config), self.config, build.source.dtype)
        model = skeleton if build.source.device.type == "meta" else self._loaded(build)
        names = {module: name for name, module in skeleton.named_modules()}
        attention = [names[module] for module in _dry_run(skeleton, self.max_context)]
        step = CurrentStep()
        for index, name in enumerate(attention):
            install(model.get_submodule(name), self._layer(index, build, step))
        model.set_attn_implementation(IMPLEMENTATION)
        decoder = TransformersDecoder(model, step)
        _count(model, build)
        if build.source.device.type != "meta":
            log.warning("%s runs through transformers: slower than architectures of our own", self.config.model_type)
            require_independent_tokens(decoder, self, build.operations)
        return decoder

    def _layer(self, index: int, build: ModelBuilder, step: CurrentStep) -> PagedLayer:
        layer = self.layers[index]
        return PagedLayer(index, layer, layer.params, self.width, step, build.operations)

    def _loaded(self, build: ModelBuilder) -> PreTrainedModel:
        """transformers' model on the source's device: with its folder's weights, or with random ones."""
        register()
        kind, source = model_class(self.config), build.source
        if source.folder is None:
            with torch.device(source.device), _quiet():
                model = kind._from_config(copy.deepcopy(self.config), dtype=source.dtype)
        else:
            model = self._from_folder(kind, build)
        return model.eval().requires_grad_(requires_grad=False)

    def _from_folder(self, kind: type[PreTrainedModel], build: ModelBuilder) -> PreTrainedModel:
        source = build.source
        try:
            with _quiet():
                model, report = kind.from_pretrained(
                    source.folder, config=copy.deepcopy(self.config), dtype=source.dtype, output_loading_info=True,
                    local_files_only=True, use_safetensors=True,
                )  # fmt: skip
        except Exception as error:
            raise ModelLoadError(f"{source.folder}: transformers can't load it: {one_line(error)}") from error
        _require_loaded(str(source.folder), report)
        return model.to(source.device)


def _on_meta(kind: type[PreTrainedModel], config: PreTrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    """A model without storage."""
    register()
    with torch.device("meta"), _quiet():
        return kind._from_config(copy.deepcopy(config), dtype=dtype).eval()


def _dry_run(model: PreTrainedModel, context: int) -> dict[nn.Module, LayerAttention]:
    if model._can_set_experts_implementation():
        model.set_experts_implementation(_EXPERTS)
    require_head(model)
    with torch.no_grad():
        return DryRun(model, context).run()


def _count(model: PreTrainedModel, build: ModelBuilder) -> None:
    """Count the bytes of the weights, each once; a source without storage is asked for them."""
    for name, parameter in model.named_parameters():
        if parameter.device.type == "meta":
            build.vector(name, *parameter.shape)
        else:
            build.held(parameter)
    for buffer in model.buffers():
        build.held(buffer)


def _require_loaded(where: str, report: Mapping[str, object]) -> None:
    """ModelLoadError unless the folder had exactly the model's weights."""
    for problem in ("missing_keys", "mismatched_keys", "unexpected_keys", "error_msgs"):
        found = sorted(map(str, report.get(problem) or ()))  # type: ignore[call-overload]
        if found:
            raise ModelLoadError(f"{where}: {problem.replace('_', ' ')}: {', '.join(found[:3])} ({len(found)} in all)")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' progress bars and advice: this engine's own say enough."""
    from transformers.utils import logging as their_logging  # noqa: PLC0415  slow to import

    verbosity, bars = their_logging.get_verbosity(), their_logging.is_progress_bar_enabled()
    their_logging.set_verbosity_error()
    their_logging.disable_progress_bar()
    try:
        yield
    finally:
        their_logging.set_verbosity(verbosity)
        if bars:
            their_logging.enable_progress_bar()
