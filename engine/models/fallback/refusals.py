"""What the fallback does not run, by what its configuration and its class say; before any model is built."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from thothy_ai.engine.api.errors import UnsupportedModelError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_ALIBI = {"bloom", "mpt"}
_ATTENTION = {"full_attention", "sliding_attention"}  # of the types that layers have in configurations
BY_LENGTH = {"dynamic", "longrope"}  # beyond the original context, rotary frequencies that change with the length


def model_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """transformers' class for the configuration; UnsupportedModelError for one that the fallback does not run."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING  # noqa: PLC0415  slow to import

    if config.is_encoder_decoder:
        raise UnsupportedModelError("encoder-decoders are not implemented")
    if hasattr(config, "text_config"):
        raise UnsupportedModelError("it is multimodal, and its text part is not known")
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UnsupportedModelError("it is no decoder that transformers knows")
    if getattr(config, "alibi", False) or config.model_type in _ALIBI:
        raise UnsupportedModelError("attention with ALiBi is not implemented")
    if getattr(config, "quantization_config", None) is not None:
        raise UnsupportedModelError("it would run through transformers, and not quantized there")
    found: type[PreTrainedModel] = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]  # type: ignore[assignment]  # of the named
    _require_interface(found, config)
    others = sorted({str(kind) for kind in getattr(config, "layer_types", None) or ()} - _ATTENTION)
    if others:
        raise UnsupportedModelError(f"layers of type {', '.join(others)} are not implemented")
    return found


def _require_interface(cls: type[PreTrainedModel], config: PreTrainedConfig) -> None:
    kinds = set(getattr(config, "layer_types", None) or ())
    if getattr(cls, "_is_stateful", False) and not (kinds and kinds <= _ATTENTION):  # some hybrids have no other layers
        raise UnsupportedModelError("recurrent state is not implemented")
    if not hasattr(sys.modules[cls.__module__], "ALL_ATTENTION_FUNCTIONS"):
        raise UnsupportedModelError("its attention does not go through transformers' attention interface")


def context_of(config: PreTrainedConfig) -> int:
    """How many tokens the model serves: rotary frequencies that change with the length end at the original context."""
    context = getattr(config, "max_position_embeddings", None)
    if not isinstance(context, int) or isinstance(context, bool) or context < 1:
        raise UnsupportedModelError(f"max_position_embeddings is {context!r}")
    originals: list[int | None] = [
        each.get("original_max_position_embeddings") or getattr(config, "original_max_position_embeddings", None)
        for each in _ropes(config)
        if each.get("rope_type") in BY_LENGTH
    ]
    return min([context, *filter(None, originals)])


def _ropes(config: PreTrainedConfig) -> list[Mapping[str, Any]]:
    """The rotary parameters of all kinds of layers."""
    parameters = getattr(config, "rope_parameters", None) or {}
    nested = [each for each in parameters.values() if isinstance(each, Mapping)]
    return nested or [parameters]
