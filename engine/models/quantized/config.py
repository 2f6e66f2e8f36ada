"""Reads the `quantization_config` of a config.json; what this engine would multiply wrongly is refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.models.quantized.awq import awq
from thothy_ai.engine.models.quantized.compressed_tensors import compressed_tensors
from thothy_ai.engine.models.quantized.fp8 import fbgemm_fp8, fp8
from thothy_ai.engine.models.quantized.gguf import METHOD as GGUF
from thothy_ai.engine.models.quantized.gguf import gguf
from thothy_ai.engine.models.quantized.gptq import gptq
from thothy_ai.engine.models.quantized.layout import Quantization
from thothy_ai.engine.models.quantized.mxfp4 import FAMILY as MXFP4_FAMILY
from thothy_ai.engine.models.quantized.mxfp4 import mxfp4
from thothy_ai.engine.models.quantized.settings import Settings

if TYPE_CHECKING:
    from thothy_ai.engine.checkpoint.configuration import Configuration

_METHODS: dict[str, Callable[[Settings], Quantization]] = {
    "fp8": fp8,
    "fbgemm_fp8": fbgemm_fp8,
    "compressed-tensors": compressed_tensors,
    "awq": awq,
    "gptq": gptq,
    "mxfp4": mxfp4,
    GGUF: gguf,
}
_CACHE_SCALES = (
    "k_scale",
    "v_scale",
    "k_cache_scale",
    "v_cache_scale",
    "q_scale",
)  # of an fp8 KV cache: ours are by token


def quantization_of(config: Configuration) -> Quantization | None:
    """Of a model's configuration; None where nothing is quantized."""
    content = getattr(config, "quantization_config", None)
    if content is None:
        return None
    found = read_quantization(content)
    if found.method == "mxfp4" and config.model_type != MXFP4_FAMILY:
        raise UnsupportedModelError(f"quantization method 'mxfp4' is not implemented for {config.model_type!r}")
    return found


def read_quantization(content: object) -> Quantization:
    """By the value of `quantization_config`; UnsupportedModelError and ModelLoadError name what is wrong with it."""
    if not isinstance(content, Mapping):
        raise ModelLoadError(f"quantization_config is {content!r}")
    method = content.get("quant_method")
    if method not in _METHODS:
        known = ", ".join(_METHODS)
        raise UnsupportedModelError(f"quantization method {method!r} is not implemented (known: {known})")
    try:
        found = _METHODS[method](Settings(method, content))
    except ValueError as error:
        raise ModelLoadError(f"{method}: {error}") from error
    for rule in found.rules:
        _require_pattern(method, rule.pattern)
    return replace(found, needless=(*found.needless, *_CACHE_SCALES))


def _require_pattern(method: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ModelLoadError(f"{method}: {pattern!r} matches no names: {error}") from error
