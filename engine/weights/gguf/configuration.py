"""The metadata of a GGUF file as transformers' configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
    by_layer,
    kv_heads,
    model_type_of,
    names_of,
    num_layers,
)

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_HARMLESS = {  # keys whose effect other keys decide, or that do not affect what a model computes
    ".vocab_size", ".tensor_data_layout", ".attention.layer_norm_epsilon", ".attention.layer_norm_rms_epsilon",
    ".rope.scaling.original_context_length", ".rope.scaling.finetuned", ".rope.scaling.yarn_beta_fast",
    ".rope.scaling.yarn_beta_slow",
}  # fmt: skip
_OF_YARN = (".rope.scaling.yarn_ext_factor", ".rope.scaling.yarn_attn_factor")
_SAID_BY_ZERO = {".rope.scaling.attn_factor", *_OF_YARN}  # keys whose zero is not the same as no key
_WINDOW = ".attention.sliding_window"
_WINDOWED = ".attention.sliding_window_pattern"  # which layers have a window
_STILL = 1e20  # a divisor this large stops a frequency
_INNER = ".feed_forward_length"
_FACTOR = ".rope.scaling.factor"
_ORIGINAL_CONTEXT = ".rope.scaling.original_context_length"


def configuration(file: GGUFFile) -> PreTrainedConfig:
    """The transformers configuration of the file's model.

    UnsupportedModelError names any key of the architecture that asks for something not implemented.
    """
    from transformers import AutoConfig  # noqa: PLC0415  slow to import

    if file.architecture not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"{file.path}: architecture {file.architecture!r} is not implemented (known: {', '.join(ARCHITECTURES)})"
        )
    names, model_type = names_of(file), model_type_of(file)
    fields = _common_fields(file)
    if file.architecture == "llama" and (window := file.get(_WINDOW, int)):
        model_type, fields["sliding_window"] = model_type if names.experts else "mistral", window
    elif names.optional_bias:
        fields["attention_bias"] = "blk.0.attn_q.bias" in file.names
    fields |= _own_fields(file)
    layers = fields["num_hidden_layers"]
    if names.uneven:
        fields |= _of_layers(file, layers)
    elif names.by_layer is not None:
        fields |= names.by_layer(*(_listed(file, key, layers) for key in names.listed))
    elif any(0 in numbers[:layers] for numbers in (kv_heads(file)[1], by_layer(file, _INNER, 0)[1])):
        raise UnsupportedModelError(f"{file.path}: layers without KV heads or an MLP are not implemented")
    if names.windows_in_some and file.holds(_WINDOWED):
        fields["layer_types"] = _layer_types(file, fields["num_hidden_layers"])
    _refuse_unread(file, fields)
    fields |= {"architectures": [causal_class(model_type)]}
    try:
        fields |= names.derived(fields)
    except ModelLoadError as error:
        raise type(error)(f"{file.path}: {error}") from error
    return AutoConfig.for_model(
        model_type, **{name: value for name, value in fields.items() if not name.startswith("_")}
    )


def _own_fields(file: GGUFFile) -> dict[str, Any]:
    """The fields that only this architecture has."""
    names = names_of(file)
    fields: dict[str, Any] = {name: _number(file, key) for name, key in names.settings.items()}
    for name, (key, default) in names.defaults.items():
        fields[name] = default
        if isinstance(default, bool):
            fields[name] = file.get(key, bool, default)
        elif file.holds(key):
            fields[name] = _number(file, key)
    return fields | {name: f"blk.0.{tensor}" in file.names for name, tensor in names.present.items()}


def _of_layers(file: GGUFFile, layers: int) -> dict[str, Any]:
    """The numbers of each layer, which a file can give once for all layers."""
    (heads, by_heads), (inner, by_inner) = kv_heads(file), by_layer(file, _INNER, 0)
    return {
        "_kv_heads": _listed(file, ".attention.head_count_kv", layers) if by_heads else (heads,) * layers,
        "_inner": _listed(file, _INNER, layers) if by_inner else (inner,) * layers,
        "_with_values": tuple(f"blk.{layer}.attn_v.weight" in file.names for layer in range(layers)),
    }


def _listed(file: GGUFFile, key: str, layers: int) -> tuple[int, ...]:
    """The number of each layer; ModelLoadError unless the file lists them."""
    numbers = by_layer(file, key, 0)[1][:layers]
    if len(numbers) < layers:
        raise ModelLoadError(
            f"{file.path}: metadata {file.architecture + key!r} is {file.get(key, object)!r}: "
            f"this architecture needs a list of {layers} numbers, one of each layer"
        )
    return numbers


def causal_class(model_type: str) -> str:
    """The name of transformers' class with a language model's head; its own table takes a second to import."""
    from transformers import CONFIG_MAPPING  # noqa: PLC0415  slow to import

    name: str = CONFIG_MAPPING[model_type].__name__
    return f"{name.removesuffix('Config').removesuffix('Text')}ForCausalLM"


def _common_fields(file: GGUFFile) -> dict[str, Any]:
    heads, hidden = file.positive(".attention.head_count"), file.positive(".embedding_length")
    names = names_of(file)
    head_dim = file.get(names.head_dim, int, hidden // heads)
    eps, eps_key = names.norm_eps
    end_keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    ends = list(dict.fromkeys(value for key in end_keys if (value := file.get(key, int)) is not None))
    return {
        "vocab_size": file.shape("token_embd.weight")[0],
        "hidden_size": hidden,
        "intermediate_size": by_layer(file, _INNER, 0)[0] or file.positive(".expert_feed_forward_length"),
        "num_hidden_layers": num_layers(file),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads(file)[0],
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


def _layer_types(file: GGUFFile, layers: int) -> list[str]:
    """Each layer's type. The file lists the layers with a window, or says that every nth has none (0: all have)."""
    windows: list[bool]
    match file.get(_WINDOWED, object):
        case bool():
            windows = []
        case int(period) if period >= 0:
            windows = [not period or index % period < period - 1 for index in range(layers)]
        case list(said) if all(isinstance(each, int) for each in said):
            windows = [bool(each) for each in said]
        case _:
            windows = []
    if len(windows) != layers:
        raise ModelLoadError(f"{file.path}: metadata {file.architecture + _WINDOWED!r} does not fit {layers} layers")
    return ["sliding_attention" if each else "full_attention" for each in windows]


def _refuse_unread(file: GGUFFile, fields: Mapping[str, Any]) -> None:
    """UnsupportedModelError for an unread key of the architecture, unless it only repeats an implied value."""
    names, rope, head_dim = names_of(file), fields["rope_parameters"], fields["head_dim"]
    windowed_dim = fields.get("_head_dim_of_windows", head_dim)
    if not file.get(".attention.causal", bool, True):
        raise UnsupportedModelError(f"{file.path}: bidirectional attention is not implemented")
    if file.get(".expert_count", int) and not names.sparse:
        raise UnsupportedModelError(f"{file.path}: {file.architecture}.expert_count is not implemented")
    implied: dict[str, float] = {  # values that further keys can repeat
        ".embedding_length_out": fields["hidden_size"],
        ".expert_feed_forward_length": fields["intermediate_size"],
        ".attention.value_length": head_dim,
        ".attention.key_length_swa": windowed_dim,
        ".attention.value_length_swa": windowed_dim,
        ".rope.dimension_count_swa": (1 if names.uneven else rope.get("partial_rotary_factor", 1)) * windowed_dim,
        ".rope.freq_base_swa": rope["rope_theta"],
        ".rope.scaling.attn_factor": _attention_factor(rope, fields["max_position_embeddings"]),
        ".rope.scaling.yarn_ext_factor": float(rope["rope_type"] == "yarn"),
        ".rope.scaling.yarn_attn_factor": 1,
        **names.implied,
    }
    for key in file.unread:
        value = file.get(key, object)
        said = any(value) if isinstance(value, list) else bool(value) or key in _SAID_BY_ZERO
        if not said or key in _HARMLESS or key in names.needless:
            continue
        if isinstance(value, int | float) and math.isclose(value, implied.get(key, math.nan), rel_tol=1e-5):
            continue
        shown = "" if isinstance(value, list) else f" {value}"
        raise UnsupportedModelError(f"{file.path}: {file.architecture}{key}{shown} is not implemented")


def _attention_factor(rope: Mapping[str, Any], context: int) -> float:
    """The factor of cosines and sines, without the one that yarn's rule derives from its scaling factor."""
    original = rope.get("original_max_position_embeddings", context)
    if rope["rope_type"] != "longrope" or context <= original:
        return 1.0
    return math.sqrt(1 + math.log(context / original) / math.log(original))


def _rope_parameters(file: GGUFFile, head_dim: int) -> dict[str, Any]:
    parameters: dict[str, Any] = {"rope_theta": _shortest(file.get(".rope.freq_base", float, 10000.0))}
    turned = file.get(".rope.dimension_count", int, head_dim)
    if names_of(file).partial_rotary:
        parameters["partial_rotary_factor"] = turned / head_dim
    elif turned != head_dim:
        raise UnsupportedModelError(f"{file.path}: partial rotary embedding is not implemented")
    kind = file.get(".rope.scaling.type", str, "linear" if file.holds(_FACTOR) else "none")
    if LONG_FACTORS in file.names and kind in {"none", "longrope"}:
        return parameters | {
            "rope_type": "longrope",
            "long_factor": file.tensor(LONG_FACTORS).tolist(),
            "short_factor": file.tensor(SHORT_FACTORS).tolist(),
            "original_max_position_embeddings": file.required(_ORIGINAL_CONTEXT, int),
        }
    if ROPE_FACTORS in file.names and kind == "none":
        return parameters | _divided(file, parameters["rope_theta"], head_dim)
    if kind == "none":
        file.get(_FACTOR, float)  # marks the key as read: it has no effect here
        return parameters | {"rope_type": "default"}
    if kind not in {"linear", "yarn"} or {LONG_FACTORS, ROPE_FACTORS} & {*file.names}:
        raise UnsupportedModelError(f"{file.path}: rope scaling {kind!r} is not implemented")
    parameters |= {"rope_type": kind, "factor": _shortest(file.required(_FACTOR, float))}
    return parameters | _yarn(file) if kind == "yarn" else parameters


def _yarn(file: GGUFFile) -> dict[str, Any]:
    """YaRN's own parameters. ModelLoadError for a bound of 0, which transformers would replace by the default."""
    parameters: dict[str, Any] = {"original_max_position_embeddings": file.required(_ORIGINAL_CONTEXT, int)}
    for name in ("beta_fast", "beta_slow"):  # if missing, transformers and llama.cpp have the same defaults
        key = f".rope.scaling.yarn_{name}"
        if (beta := file.get(key, float)) is not None:
            if beta <= 0:
                raise ModelLoadError(f"{file.path}: metadata {file.architecture + key!r} is {beta:g}")
            parameters[name] = _shortest(beta)
    return parameters


def _divided(file: GGUFFile, theta: float, head_dim: int) -> dict[str, Any]:
    """The rope parameters that yield the file's divisors of frequencies."""
    if not names_of(file).proportional:
        return _llama3_parameters(file, theta, head_dim)
    divisors = file.tensor(ROPE_FACTORS)  # 1 for the pairs that turn; large for the others
    turned = int((divisors == 1).sum())
    if not turned or bool((divisors[:turned] != 1).any() | (divisors[turned:] < _STILL).any()):
        raise UnsupportedModelError(f"{file.path}: rope_freqs is not that of proportional rotary embedding")
    return {"rope_type": "proportional", "partial_rotary_factor": turned / len(divisors)}


def _llama3_parameters(file: GGUFFile, theta: float, head_dim: int) -> dict[str, Any]:
    """The parameters of Llama 3.1's or Llama 4's scaling. A GGUF file has only a divisor of each frequency, which the
    parameters must reproduce.
    """
    divisors = file.tensor(ROPE_FACTORS)
    factor, low, context = _shortest(divisors.max().item()), 1.0, 8192
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    turns = context / (2 * torch.pi * theta**exponents)
    for high in (4.0, 1.0):  # Llama 4 keeps a frequency or divides it
        kept = ((turns - low) / (high - low)).clamp(0, 1) if high > low else (turns >= low).float()
        if divisors.shape == kept.shape and torch.allclose(1 / ((1 - kept) / factor + kept), divisors, rtol=1e-3):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_max_position_embeddings": context,
            }
    raise UnsupportedModelError(f"{file.path}: rope_freqs is not the scaling of Llama 3.1 or 4")


def _shortest(value: float) -> float:
    """The shortest decimal that is the same float32: 1e-05 rather than 9.999999747378752e-06. ValueError for NaN."""
    if not math.isfinite(value):
        raise ValueError(f"a number of its metadata is {value}")
    return float(str(np.float32(value)))
