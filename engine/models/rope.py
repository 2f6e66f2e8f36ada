"""The rotary frequencies of a configuration, and the context length that they support.

Dynamic and long rotary embeddings depend on a length. As in vLLM, this is the context length that the engine serves, so
that all keys in the KV cache are of one kind, and a prefix is the same for every sequence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.models import rope_scaling
from thothy_ai.engine.models.rope_scaling import Scaled

if TYPE_CHECKING:
    from thothy_ai.engine.checkpoint.configuration import Configuration

_LONGER = ("cohere", "cohere2")  # positions reach to model_max_length
_USUAL_LAYERS, _LOCAL_LAYERS = "full_attention", "sliding_attention"


_FIELDS = (
    "rope_type", "type", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings",
    "max_position_embeddings", "factor", "mrope_section", "mrope_interleaved",  # text has one axis
)  # fmt: skip
_OF_FAMILY = {"ministral3": ("llama_4_scaling_beta",)}  # fields that the family's attention uses
_FIELDS_OF = {  # further fields, by type
    "default": (),
    "linear": (),
    "proportional": (),
    "llama3": ("low_freq_factor", "high_freq_factor"),
    "yarn": ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate", "finetuned"),
    "dynamic": (),
    "longrope": ("attention_factor", "short_factor", "long_factor"),
}


_SCALED = {
    "linear": rope_scaling.linear, "proportional": rope_scaling.proportional, "llama3": rope_scaling.llama3,
}  # fmt: skip


class Stretch(Protocol):
    """Frequencies that depend on the context."""

    def at(self, context: int) -> tuple[float, ...]:
        """The frequencies for sequences of at most `context` tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Rope:
    """A frequency for each pair of dimensions that rotates, and the factor of cosines and sines.

    With fewer than head_dim / 2 frequencies a head's last dimensions do not rotate (partial rotary embedding).
    """

    inverse_frequencies: tuple[float, ...]
    scaling: float = 1.0
    stretch: Stretch | None = None

    def __post_init__(self) -> None:
        """Raise ModelLoadError for frequencies with which no position could be told from another."""
        for frequency in self.inverse_frequencies:
            if not 0 <= frequency < math.inf:  # NaN included
                raise ModelLoadError(f"a rotary frequency is {frequency:g}: check rope_theta and its scaling's factors")

    def within(self, context: int) -> Rope:
        """The rotary embedding for a context of at most `context` tokens."""
        return self if self.stretch is None else replace(self, inverse_frequencies=self.stretch.at(context))


@dataclass(frozen=True, slots=True)
class LongRope:
    """LongRoPE (Ding et al., 2024): other frequencies for contexts beyond the one of pretraining."""

    short: tuple[float, ...]
    long: tuple[float, ...]
    original_context: int

    def at(self, context: int) -> tuple[float, ...]:
        return self.long if context > self.original_context else self.short


@dataclass(frozen=True, slots=True)
class DynamicNTK:
    """Dynamic NTK scaling (as in transformers): beyond the original context the base grows with the length."""

    theta: float
    dimensions: int
    factor: float
    original_context: int

    def at(self, context: int) -> tuple[float, ...]:
        ratio = max(context, self.original_context) / self.original_context
        growth = self.factor * ratio - (self.factor - 1)
        return plain_frequencies(self.theta * growth ** (self.dimensions / (self.dimensions - 2)), self.dimensions)


def read_ropes(config: Configuration, head_dim: int, local_dim: int | None = None) -> tuple[Rope, Rope | None]:
    """The rotary embedding of most layers, and of layers with a sliding window if they have their own, whose
    heads have size `local_dim` if it differs.

    UnsupportedModelError for a kind that is not implemented.
    """
    parameters = getattr(config, "rope_parameters", None)
    if parameters is None:  # no layer has positions
        return Rope(()), None
    if _USUAL_LAYERS not in parameters:
        return _rope(config, head_dim, None), None
    local = _rope(config, local_dim or head_dim, _LOCAL_LAYERS) if parameters.get(_LOCAL_LAYERS) else None
    return _rope(config, head_dim, _USUAL_LAYERS), local


def extended_context(config: Configuration) -> int:
    """The number of positions that rotary embedding supports; yarn and dynamic scaling extend the configured one."""
    said: int = config.max_position_embeddings
    if config.model_type in _LONGER:
        said = getattr(config, "model_max_length", None) or said
    parameters = getattr(config, "rope_parameters", None) or {}
    parameters = parameters.get(_USUAL_LAYERS, parameters)
    kind, factor = parameters.get("rope_type"), parameters.get("factor")
    if kind == "dynamic":
        return int(said * factor)
    if kind == "yarn" and factor is not None:
        return max(said, int(parameters["original_max_position_embeddings"] * factor))
    return said


def plain_frequencies(theta: float, dimensions: int) -> tuple[float, ...]:
    """theta ** (-2i / dimensions) of each pair i, in float32."""
    return tuple(rope_scaling.plain(theta, dimensions).tolist())


def _rope(config: Configuration, head_dim: int, layer_type: str | None) -> Rope:
    parameters = config.rope_parameters if layer_type is None else config.rope_parameters[layer_type]
    kind = parameters.get("rope_type", "default")
    dimensions = head_dim if kind == "proportional" else int(head_dim * parameters.get("partial_rotary_factor", 1.0))
    if not 0 < dimensions <= head_dim or dimensions % 2:
        raise UnsupportedModelError(f"rotary embedding of {dimensions} among {head_dim} dimensions is not implemented")
    context = config.max_position_embeddings
    known = (*_FIELDS, *_FIELDS_OF.get(kind, parameters), *_OF_FAMILY.get(config.model_type, ()))
    if others := [name for name in parameters if name not in known]:
        raise UnsupportedModelError(f"{others[0]} of rotary embedding of type {kind!r} is not implemented")
    match kind:
        case "default":
            return Rope(plain_frequencies(parameters["rope_theta"], dimensions))
        case "linear" | "proportional" | "llama3":
            return _fixed(_SCALED[kind](parameters, dimensions))
        case "yarn":
            truncate = config.rope_parameters.get("truncate", True)  # the same for all layers
            return _fixed(rope_scaling.yarn(parameters, dimensions, context, truncate=truncate))
        case "dynamic":
            ntk = DynamicNTK(parameters["rope_theta"], dimensions, parameters["factor"], context)
            return Rope(ntk.at(ntk.original_context), stretch=ntk)
        case "longrope":
            return _long(parameters, dimensions, context)
    raise UnsupportedModelError(f"rope type {kind!r} is not implemented")


def _fixed(scaled: Scaled) -> Rope:
    return Rope(tuple(scaled.frequencies.tolist()), scaled.scaling)


def _long(parameters: Mapping[str, Any], dimensions: int, context: int) -> Rope:
    ropes, pairs = [], dimensions // 2
    for name in ("short_factor", "long_factor"):
        factors = parameters.get(name)
        if not isinstance(factors, list) or len(factors) != pairs:
            raise UnsupportedModelError(f"{name} must have {pairs} values, one per pair of rotary dimensions")
        ropes.append(_fixed(rope_scaling.long(parameters, dimensions, context, factors)))
    short, long = ropes
    original: int = parameters["original_max_position_embeddings"]
    return replace(short, stretch=LongRope(short.inverse_frequencies, long.inverse_frequencies, original))
