"""The metadata of a GGUF file as transformers' configuration."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.weights.gguf.file import GGUFFile
from thothy_ai.engine.weights.gguf.names import (
    ARCHITECTURES,
    LONG_FACTORS,
    ROPE_FACTORS,
    SHORT_FACTORS,
    model_type_of,
    names_of,
    num_layers,
)

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_UNIMPLEMENTED = (  # unless a family knows them
    ".expert_count", ".attention.scale", ".rope.scale_linear", ".logit_scale", ".embedding_scale", ".residual_scale",
    ".rope.dimension_sections", ".rope.scaling.yarn_attn_factor", ".rope.scaling.yarn_log_multiplier",
    ".nextn_predict_layers", ".attn_logit_softcapping", ".final_logit_softcapping",
)  # fmt: skip
_WINDOW = ".attention.sliding_window"
_ORIGINAL_CONTEXT = ".rope.scaling.original_context_length"


def configuration(file: GGUFFile) -> PreTrainedConfig:
    """The transformers configuration of the file's model; UnsupportedModelError names what is not implemented."""
    from transformers import AutoConfig  # noqa: PLC0415  slow to import

    _refuse_unimplemented(file)
    names, model_type = names_of(file), model_type_of(file)
    fields = _common_fields(file)
    window = file.get(_WINDOW, int)
    if window is not None and file.architecture == "llama":
        model_type, fields["sliding_window"] = model_type if names.experts else "mistral", window
    elif names.optional_bias:
        fields["attention_bias"] = "blk.0.attn_q.bias" in file.names
    fields |= {name: _number(file, key) for name, key in names.settings.items()}
    for name, (key, default) in names.defaults.items():
        fields[name] = default
        if isinstance(default, bool):
            fields[name] = file.get(key, bool, default)
        elif file.holds(key):
            fields[name] = _number(file, key)
    fields |= {name: f"blk.0.{tensor}" in file.names for name, tensor in names.present.items()}
    fields |= {"architectures": [causal_class(model_type)]}
    return AutoConfig.for_model(model_type, **{**fields, **names.derived(fields)})


def causal_class(model_type: str) -> str:
    """The name of transformers' class with a language model's head; its own table takes a second to import."""
    from transformers import CONFIG_MAPPING  # noqa: PLC0415  slow to import

    name: str = CONFIG_MAPPING[model_type].__name__
    return f"{name.removesuffix('Config').removesuffix('Text')}ForCausalLM"


def _common_fields(file: GGUFFile) -> dict[str, Any]:
    heads, hidden = file.positive(".attention.head_count"), file.positive(".embedding_length")
    head_dim = file.get(".attention.key_length", int, hidden // heads)
    eps, eps_key = names_of(file).norm_eps
    end_keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    ends = list(dict.fromkeys(value for key in end_keys if (value := file.get(key, int)) is not None))
    return {
        "vocab_size": file.shape("token_embd.weight")[0],
        "hidden_size": hidden,
        "intermediate_size": file.positive(".feed_forward_length"),
        "num_hidden_layers": num_layers(file),
        "num_attention_heads": heads,
        "num_key_value_heads": file.get(".attention.head_count_kv", int, heads),
        "head_dim": head_dim,
        "max_position_embeddings": file.positive(".context_length"),
        eps: _shortest(file.required(eps_key, float)),
        "rope_parameters": _rope_parameters(file, head_dim),
        "tie_word_embeddings": "output.weight" not in file.names,
        "bos_token_id": file.get("tokenizer.ggml.bos_token_id", int),
        "eos_token_id": ends if len(ends) > 1 else next(iter(ends), None),
        "pad_token_id": file.get("tokenizer.ggml.padding_token_id", int),
    }


def _number(file: GGUFFile, key: str) -> int | float:
    value = file.required(key, object)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelLoadError(f"{file.path}: metadata {file.architecture + key!r} is {value!r}")
    return value if isinstance(value, int) else _shortest(value)


def _refuse_unimplemented(file: GGUFFile) -> None:
    if file.architecture not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"{file.path}: architecture {file.architecture!r} is not implemented (known: {', '.join(ARCHITECTURES)})"
        )
    names = names_of(file)
    known = {*names.settings.values(), *(key for key, _ in names.defaults.values()), names.further_layers}
    for key in (key for key in _UNIMPLEMENTED if key not in known):
        if file.get(key, object):
            raise UnsupportedModelError(f"{file.path}: {file.architecture}{key} is not implemented")
    if file.get(_WINDOW, int) is not None and file.architecture != "llama" and _WINDOW not in known:
        raise UnsupportedModelError(f"{file.path}: a sliding window in {file.architecture} is not implemented")
    for key, value in names.implied.items():
        if (said := file.get(key, int, value)) != value:
            raise UnsupportedModelError(f"{file.path}: {file.architecture}{key} {said} is not implemented")


def _rope_parameters(file: GGUFFile, head_dim: int) -> dict[str, Any]:
    parameters: dict[str, Any] = {"rope_theta": _shortest(file.get(".rope.freq_base", float, 10000.0))}
    turned = file.get(".rope.dimension_count", int, head_dim)
    if names_of(file).partial_rotary:
        parameters["partial_rotary_factor"] = turned / head_dim
    elif turned != head_dim:
        raise UnsupportedModelError(f"{file.path}: partial rotary embedding is not implemented")
    if LONG_FACTORS in file.names:
        # The factor of cosines follows from both contexts, in files as in transformers.
        return parameters | {
            "rope_type": "longrope",
            "long_factor": file.tensor(LONG_FACTORS).tolist(),
            "short_factor": file.tensor(SHORT_FACTORS).tolist(),
            "original_max_position_embeddings": file.required(_ORIGINAL_CONTEXT, int),
        }
    if ROPE_FACTORS in file.names:
        return parameters | _llama3_parameters(file, parameters["rope_theta"], head_dim)
    kind = file.get(".rope.scaling.type", str, "none")
    if kind == "none":
        return parameters | {"rope_type": "default"}
    if kind not in {"linear", "yarn"}:
        raise UnsupportedModelError(f"{file.path}: rope scaling {kind!r} is not implemented")
    parameters |= {"rope_type": kind, "factor": _shortest(file.required(".rope.scaling.factor", float))}
    if kind == "yarn":
        parameters["original_max_position_embeddings"] = file.required(_ORIGINAL_CONTEXT, int)
        for name in ("beta_fast", "beta_slow"):  # where they are missing, transformers' defaults are llama.cpp's
            if (beta := file.get(f".rope.scaling.yarn_{name}", float)) is not None:
                parameters[name] = _shortest(beta)
    return parameters


def _llama3_parameters(file: GGUFFile, theta: float, head_dim: int) -> dict[str, Any]:
    """Llama 3.1's scaling. A GGUF file has only its result, a divisor of each frequency, which must come out again."""
    divisors = file.tensor(ROPE_FACTORS)
    factor, low, high, context = _shortest(divisors.max().item()), 1.0, 4.0, 8192
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    turns = context / (2 * torch.pi * theta**exponents)
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    if divisors.shape != smooth.shape or not torch.allclose(1 / ((1 - smooth) / factor + smooth), divisors, rtol=1e-3):
        raise UnsupportedModelError(f"{file.path}: rope_freqs is not the scaling of Llama 3.1")
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": context,
    }


def _shortest(value: float) -> float:
    """The shortest decimal that is the same float32: 1e-05 rather than 9.999999747378752e-06. ValueError for NaN."""
    if not math.isfinite(value):
        raise ValueError(f"a number of its metadata is {value}")
    return float(str(np.float32(value)))
