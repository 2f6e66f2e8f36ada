"""Decides by a configuration and its class, before any model is built, whether the fallback runs it.

`CHECKED` lists architectures known to run, `REFUSED` some that do not. tests/unit/engine verifies both tables, token by
token, with small random models.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.models.fallback.by_hand import BY_HAND

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

CHECKED = (
    "apertus", "arcee", "biogpt", "bitnet", "bloom", "dots1", "ernie4_5", "ernie4_5_moe", "exaone4", "falcon", "gpt2",
    "gpt_neox", "granitemoe", "helium", "hunyuan_v1_dense", "minicpm3", "mpt", "nemotron", "olmo", "olmoe", "opt",
    "phi", "phimoe", "stablelm", "starcoder2",
)  # fmt: skip
REFUSED = {  # architecture: the reason, as errors give it
    "bert": "attention is bidirectional: it is an encoder",
    "gptj": "its attention does not go through transformers' attention interface",
    "jamba": "recurrent state is not implemented",
    "mamba": "recurrent state is not implemented",
    "recurrent_gemma": "recurrent state is not implemented",
    "rwkv": "recurrent state is not implemented",
    "t5": "encoder-decoders are not implemented",
}

_ATTENTION = {"full_attention", "sliding_attention"}  # of the types that layers have in configurations
_RECURRENT = {"linear_attention"}
_UNREAD: Mapping[str, Mapping[str, Any]] = {  # what transformers computes, whatever a configuration says
    "mpt": {
        "attn_config.attn_type": "multihead_attention",
        "attn_config.alibi": True,
        "attn_config.alibi_bias_max": 8,
        "attn_config.prefix_lm": False,
        "attn_config.qk_ln": False,
        "norm_type": "low_precision_layernorm",
        "logit_scale": None,
    },
}
_CONTEXT = ("max_position_embeddings", "max_seq_len", "seq_length")  # MPT's and BLOOM's names come last
BY_LENGTH = {"dynamic", "longrope"}  # rotary frequencies that change with the length beyond the original context


def model_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """transformers' class for the configuration; UnsupportedModelError for one that the fallback does not run."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING  # noqa: PLC0415  slow to import

    if config.is_encoder_decoder:
        raise UnsupportedModelError("encoder-decoders are not implemented")
    if hasattr(config, "text_config"):
        raise UnsupportedModelError("it is multimodal, and its text part is not known")
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UnsupportedModelError("transformers has no decoder of this architecture")
    if getattr(config, "quantization_config", None) is not None:
        raise UnsupportedModelError("it would run through transformers, and not quantized there")
    found: type[PreTrainedModel] = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]  # type: ignore[assignment]  # of the named
    kinds = [str(kind) for kind in getattr(config, "layer_types", None) or ()]
    attend = [kind.endswith("attention") and kind not in _RECURRENT for kind in kinds]
    # A hybrid may have attention layers only.
    if getattr(found, "_is_stateful", False) and not (attend and all(attend)):
        raise UnsupportedModelError("recurrent state is not implemented")
    if config.model_type not in BY_HAND and not hasattr(sys.modules[found.__module__], "ALL_ATTENTION_FUNCTIONS"):
        raise UnsupportedModelError("its attention does not go through transformers' attention interface")
    for index, kind in enumerate(kinds):
        if kind not in _ATTENTION:
            raise UnsupportedModelError(f"layer {index} is of type {kind!r}, which is not implemented")
    _require_computed(config)
    return found


def _require_computed(config: PreTrainedConfig) -> None:
    """UnsupportedModelError for a value that transformers' model would not heed."""
    for name, computed in _UNREAD.get(config.model_type, {}).items():
        if (said := attrgetter(name)(config)) != computed:
            raise UnsupportedModelError(f"{name} is {said!r}: transformers computes {computed!r} only")


def context_of(config: PreTrainedConfig) -> int:
    """How many tokens the model serves: rotary frequencies that change with the length end at the original context."""
    found = (getattr(config, name, None) for name in _CONTEXT)
    context = next((each for each in found if each is not None), None)
    if not isinstance(context, int) or isinstance(context, bool) or context < 1:
        raise UnsupportedModelError(f"max_position_embeddings is {context!r}")
    parameters: Mapping[str, Any] = getattr(config, "rope_parameters", None) or {}
    by_layer_type = [each for each in parameters.values() if isinstance(each, Mapping)]
    originals: list[int | None] = [
        each.get("original_max_position_embeddings") or getattr(config, "original_max_position_embeddings", None)
        for each in by_layer_type or [parameters]
        if each.get("rope_type") in BY_LENGTH
    ]
    return min([context, *filter(None, originals)])
