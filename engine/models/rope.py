"""Rotary frequencies as a configuration wants them, and how far they reach.

Dynamic and long rotary embeddings depend on a length. Here that is the context which the engine serves: the KV cache
never holds keys of two kinds, and a prefix is the same for every sequence (vLLM chooses alike).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import torch

from thothy_ai.engine.errors import UnsupportedModelError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_FIXED = {"linear", "llama3", "yarn"}  # by transformers' functions; these depend on no length
_SAID_APART = ("cohere", "cohere2")  # whose positions reach to model_max_length
_USUAL_LAYERS, _LOCAL_LAYERS = "full_attention", "sliding_attention"


class Stretch(Protocol):
    """Frequencies that depend on the context."""

    def at(self, context: int) -> tuple[float, ...]:
        """Those for sequences of at most `context` tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary frequencies, one for each pair of dimensions that turns, and what cosines and sines are multiplied by.

    With fewer than head_dim / 2 frequencies a head's last dimensions do not turn (partial rotary embedding).
    """

    inverse_frequencies: tuple[float, ...]
    scaling: float = 1.0
    stretch: Stretch | None = None

    def within(self, context: int) -> Rope:
        """The same for a context of at most so many tokens."""
        return self if self.stretch is None else replace(self, inverse_frequencies=self.stretch.at(context))


@dataclass(frozen=True, slots=True)
class LongRope:
    """LongRoPE (Ding et al., 2024): other frequencies for contexts beyond the one of pretraining."""

    short: tuple[float, ...]
    long: tuple[float, ...]
    original_context: int

    def at(self, context: int) -> tuple[float, ...]:
        """`short` or `long`."""
        return self.long if context > self.original_context else self.short


@dataclass(frozen=True, slots=True)
class DynamicNTK:
    """Dynamic NTK scaling (as in transformers): beyond the original context the base grows with the length."""

    theta: float
    dimensions: int
    factor: float
    original_context: int

    def at(self, context: int) -> tuple[float, ...]:
        """Those of the base for sequences of `context` tokens."""
        ratio = max(context, self.original_context) / self.original_context
        growth = self.factor * ratio - (self.factor - 1)
        return plain_frequencies(self.theta * growth ** (self.dimensions / (self.dimensions - 2)), self.dimensions)


def read_ropes(config: PreTrainedConfig, head_dim: int) -> tuple[Rope, Rope | None]:
    """The rotary embedding of most layers, and that of layers with a sliding window where they have their own.

    UnsupportedModelError for a kind that is not implemented.
    """
    parameters = config.rope_parameters
    if _USUAL_LAYERS not in parameters:
        return _rope(config, head_dim, None), None
    local = _rope(config, head_dim, _LOCAL_LAYERS) if parameters.get(_LOCAL_LAYERS) else None
    return _rope(config, head_dim, _USUAL_LAYERS), local


def extended_context(config: PreTrainedConfig) -> int:
    """Positions that the configuration's rotary embedding reaches: yarn's and dynamic scaling extend what it says."""
    said: int = config.max_position_embeddings
    if config.model_type in _SAID_APART:
        said = getattr(config, "model_max_length", None) or said
    parameters = config.rope_parameters
    parameters = parameters.get(_USUAL_LAYERS, parameters)
    kind, factor = parameters.get("rope_type"), parameters.get("factor")
    if kind == "dynamic":
        return int(said * factor)
    if kind == "yarn" and factor is not None:
        return max(said, int(parameters["original_max_position_embeddings"] * factor))
    return said


def plain_frequencies(theta: float, dimensions: int) -> tuple[float, ...]:
    """theta ** (-2i / dimensions) of each pair i (Su et al., 2021), in float32."""
    exponents = torch.arange(0, dimensions, 2, dtype=torch.int64).to(torch.float32) / dimensions
    return tuple((1.0 / theta**exponents).tolist())


def _rope(config: PreTrainedConfig, head_dim: int, layer_type: str | None) -> Rope:
    parameters = config.rope_parameters if layer_type is None else config.rope_parameters[layer_type]
    kind = parameters.get("rope_type", "default")
    dimensions = int(head_dim * parameters.get("partial_rotary_factor", 1.0))
    if not 0 < dimensions <= head_dim or dimensions % 2:
        raise UnsupportedModelError(f"rotary embedding of {dimensions} among {head_dim} dimensions is not implemented")
    if kind == "default":
        return Rope(plain_frequencies(parameters["rope_theta"], dimensions))
    if kind == "dynamic":
        ntk = DynamicNTK(parameters["rope_theta"], dimensions, parameters["factor"], config.max_position_embeddings)
        return Rope(ntk.at(ntk.original_context), stretch=ntk)
    if kind == "longrope":
        return _long(config, parameters["original_max_position_embeddings"], layer_type)
    if kind not in _FIXED:
        raise UnsupportedModelError(f"rope type {kind!r} is not implemented")
    return Rope(*_computed(config, kind, layer_type))


def _long(config: PreTrainedConfig, original_context: int, layer_type: str | None) -> Rope:
    short, scaling = _computed(config, "longrope", layer_type)
    long, _ = _computed(config, "longrope", layer_type, original_context + 1)
    return Rope(short, scaling, LongRope(short, long, original_context))


def _computed(
    config: PreTrainedConfig, kind: str, layer_type: str | None, length: int | None = None
) -> tuple[tuple[float, ...], float]:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: PLC0415  slow to import

    compute = ROPE_INIT_FUNCTIONS[kind]
    frequencies, scaling = compute(config, torch.device("cpu"), seq_len=length, layer_type=layer_type)
    return tuple(frequencies.tolist()), scaling
