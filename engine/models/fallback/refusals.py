"""What the fallback does not run, by what its configuration and its class say; before any model is built."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from thothy_ai.engine.errors import UnsupportedModelError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_ALIBI = {"bloom", "mpt"}
_BY_LENGTH = {"dynamic", "longrope"}  # beyond the original context, rotary frequencies that change with the length


def model_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """transformers' class for the configuration; UnsupportedModelError for one that the fallback does not run."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING  # noqa: PLC0415  slow to import

    kind = config.model_type
    if config.is_encoder_decoder:
        raise UnsupportedModelError(f"architecture {kind!r}: encoder-decoders are not implemented")
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UnsupportedModelError(f"architecture {kind!r} is no decoder that transformers knows")
    if getattr(config, "alibi", False) or kind in _ALIBI:
        raise UnsupportedModelError(f"architecture {kind!r}: attention with ALiBi is not implemented")
    if getattr(config, "quantization_config", None) is not None:
        raise UnsupportedModelError(f"architecture {kind!r} runs through transformers, and there not quantized")
    found = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    cls: type[PreTrainedModel] = found[0] if isinstance(found, tuple) else found
    _require_interface(kind, cls)
    return cls


def _require_interface(kind: str, cls: type[PreTrainedModel]) -> None:
    if getattr(cls, "_is_stateful", False):
        raise UnsupportedModelError(f"architecture {kind!r}: recurrent state is not implemented")
    if not hasattr(sys.modules[cls.__module__], "ALL_ATTENTION_FUNCTIONS"):
        raise UnsupportedModelError(
            f"architecture {kind!r}: its attention does not go through transformers' attention interface"
        )


def context_of(config: PreTrainedConfig) -> int:
    """How many tokens the model serves: rotary frequencies that change with the length end at the original context."""
    context = getattr(config, "max_position_embeddings", None)
    if not isinstance(context, int) or isinstance(context, bool) or context < 1:
        raise UnsupportedModelError(f"architecture {config.model_type!r}: max_position_embeddings is {context!r}")
    originals = [
        each.get("original_max_position_embeddings") or getattr(config, "original_max_position_embeddings", None)
        for each in _ropes(config)
        if each.get("rope_type") in _BY_LENGTH
    ]
    return min([context, *(original for original in originals if original)])


def _ropes(config: PreTrainedConfig) -> list[Mapping[str, Any]]:
    """The rotary parameters of all kinds of layers."""
    parameters = getattr(config, "rope_parameters", None) or {}
    nested = [each for each in parameters.values() if isinstance(each, Mapping)]
    return nested or [parameters]
