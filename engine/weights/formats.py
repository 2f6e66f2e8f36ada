"""Formats of the weights of a model's layers, by their names in options."""

from __future__ import annotations

from collections.abc import Callable

import torch

from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.execution.device import refuse_fp8_without_hardware
from thothy_ai.engine.models.layers.linear import Fp8Format, LinearFormat, linear
from thothy_ai.kernels.operations import Operations

STORED = "stored"


def plain(_operations: Operations) -> LinearFormat:
    """Weights in the model's type."""
    return linear


FORMATS: dict[str, Callable[[Operations], LinearFormat]] = {
    "auto": plain,
    "fp8": Fp8Format,  # quantized as each weight is loaded; the head stays plain
    STORED: plain,  # except that linear layers of a GGUF file stay quantized: less memory, slower on a CPU
}


def keeps_packed(name: str) -> bool:
    """Whether a GGUF file's quantized weights stay quantized in the format of this name."""
    return name == STORED


def weight_format(name: str, device: torch.device) -> Callable[[Operations], LinearFormat]:
    """The format of this name; InvalidRequestError if it is unknown, or if the device can't multiply it."""
    if name not in FORMATS:
        raise InvalidRequestError(f"weights {name!r} are not supported: {', '.join(FORMATS)}")
    if name == "fp8":
        refuse_fp8_without_hardware(device)
    return FORMATS[name]
