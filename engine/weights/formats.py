"""The forms that the weights of a model's layers can have, by the names that options give them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from thothy_ai.engine.errors import InvalidRequestError
from thothy_ai.engine.execution.device import refuse_fp8_without_hardware
from thothy_ai.engine.models.decoder import LinearInputs
from thothy_ai.engine.models.linear import Fp8Format, LinearFormat, linear
from thothy_ai.kernels.operations import Operations


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """What makes the layers' projections, and what makes that which these multiply. The head stays plain."""

    projection: LinearFormat
    inputs: LinearInputs


def plain(operations: Operations) -> WeightFormat:
    """Weights in the model's type."""
    return WeightFormat(linear, LinearInputs.plain(operations))


def fp8(operations: Operations) -> WeightFormat:
    """Weights and activations in fp8, quantized as each weight is loaded."""
    return WeightFormat(Fp8Format(operations), LinearInputs.fp8(operations))


_FORMATS: dict[str, Callable[[Operations], WeightFormat]] = {"auto": plain, "fp8": fp8}


def weight_format(name: str, device: torch.device) -> Callable[[Operations], WeightFormat]:
    """The form of this name; InvalidRequestError for one that is unknown, or that the device can't multiply."""
    if name not in _FORMATS:
        raise InvalidRequestError(f"weights {name!r} are not supported: {', '.join(_FORMATS)}")
    if name == "fp8":
        refuse_fp8_without_hardware(device)
    return _FORMATS[name]
