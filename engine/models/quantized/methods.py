"""The methods of `quantization_config`; one that this engine would multiply incorrectly is refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.quantized.awq import awq
from thothy_ai.engine.models.quantized.compressed_tensors import compressed_tensors
from thothy_ai.engine.models.quantized.fp8 import fbgemm_fp8, fp8
from thothy_ai.engine.models.quantized.gguf import METHOD as GGUF
from thothy_ai.engine.models.quantized.gguf import gguf
from thothy_ai.engine.models.quantized.gptq import gptq
from thothy_ai.engine.models.quantized.quantization import Quantization
from thothy_ai.engine.models.quantized.settings import MethodSettings

_MXFP4_FAMILY = "gpt_oss"  # the only one that is published so
_CACHE_SCALES = (
    "k_scale",
    "v_scale",
    "k_cache_scale",
    "v_cache_scale",
    "q_scale",
)  # of an fp8 KV cache


_METHODS: dict[str, Callable[[MethodSettings], Quantization]] = {
    "fp8": fp8,
    "fbgemm_fp8": fbgemm_fp8,
    "compressed-tensors": compressed_tensors,
    "awq": awq,
    "gptq": gptq,
    # Experts are stacks in MXFP4 (OCP Microscaling Formats, 1.0), which the family reads; linear layers are plain.
    "mxfp4": lambda settings: Quantization(settings.method, (), mxfp4_experts=True),
    GGUF: gguf,
}


def quantization_of(config: Configuration) -> Quantization | None:
    """None where nothing is quantized; errors as `read_quantization`."""
    content = getattr(config, "quantization_config", None)
    if content is None:
        return None
    found = read_quantization(content)
    if found.method == "mxfp4" and config.model_type != _MXFP4_FAMILY:
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
        found = _METHODS[method](MethodSettings(method, content))
    except ValueError as error:
        raise ModelLoadError(f"{method}: {error}") from error
    for rule in found.rules:
        try:
            re.compile(rule.pattern)
        except re.error as error:
            raise ModelLoadError(f"{method}: {rule.pattern!r} matches no names: {error}") from error
    return replace(found, needless=(*found.needless, *_CACHE_SCALES))
