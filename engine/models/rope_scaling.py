"""Rotary frequencies that a configuration scales for contexts beyond the one of pretraining, computed in float32.

`parameters` are a configuration's `rope_parameters`; optional ones have transformers' defaults.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_FASTEST, _SLOWEST = 32.0, 1.0  # rotations over the original context: yarn keeps faster ones, and stretches slower
_SINGULAR = 0.001  # instead of a width of 0


@dataclass(frozen=True, slots=True)
class Scaled:
    """Frequencies [dimensions / 2] float32, and the factor of cosines and sines."""

    frequencies: Tensor
    scaling: float = 1.0


def plain(theta: float, dimensions: int) -> Tensor:
    """theta ** (-2i / dimensions) of each pair i (Su et al., "RoFormer", 2021)."""
    return 1.0 / _periods(theta, dimensions)


def linear(parameters: Mapping[str, Any], dimensions: int) -> Scaled:
    """All frequencies divided by one factor (position interpolation; Chen et al., 2023)."""
    return Scaled(plain(parameters["rope_theta"], dimensions) / parameters["factor"])


def proportional(parameters: Mapping[str, Any], head_dim: int) -> Scaled:
    """Only the first part of a head's pairs rotates, with the same frequencies as in a full rotation (Gemma 4)."""
    turned = int(parameters.get("partial_rotary_factor", 1.0) * head_dim // 2)
    frequencies = plain(parameters["rope_theta"], head_dim) / parameters.get("factor", 1.0)
    frequencies[turned:] = 0.0
    return Scaled(frequencies)


def llama3(parameters: Mapping[str, Any], dimensions: int) -> Scaled:
    """Long waves are stretched, short ones kept, and those between partly stretched (Llama 3.1; Meta, 2024)."""
    factor, context = parameters["factor"], parameters["original_max_position_embeddings"]
    slow, fast = parameters["low_freq_factor"], parameters["high_freq_factor"]
    frequencies = plain(parameters["rope_theta"], dimensions)
    waves = 2 * math.pi / frequencies
    kept = (context / waves - slow) / (fast - slow)
    between = (1 - kept) * frequencies / factor + kept * frequencies
    frequencies = torch.where(waves > context / slow, frequencies / factor, frequencies)
    return Scaled(torch.where((waves >= context / fast) & (waves <= context / slow), between, frequencies))


def yarn(parameters: Mapping[str, Any], dimensions: int, context: int, *, truncate: bool = True) -> Scaled:
    """YaRN (Peng et al., 2023): low frequencies, with few rotations over the original context, are stretched, high ones
    are kept, and attention is sharpened. A missing factor follows from `context`, the extended one.
    """
    original, theta = parameters["original_max_position_embeddings"], parameters["rope_theta"]
    factor = _factor(parameters, context)
    periods = _periods(theta, dimensions)
    bounds = [
        dimensions * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))
        for rotations in (parameters.get("beta_fast") or _FASTEST, parameters.get("beta_slow") or _SLOWEST)
    ]
    if truncate:
        bounds = [math.floor(bounds[0]), math.ceil(bounds[1])]
    low, high = max(bounds[0], 0), min(bounds[1], dimensions - 1)
    pairs = torch.arange(dimensions // 2, dtype=torch.float32)
    kept = 1 - ((pairs - low) / (high - low or _SINGULAR)).clamp(0, 1)  # decreasing from pair `low` to `high`
    scaling: float | None = parameters.get("attention_factor")
    if scaling is None:
        scale, of_all = parameters.get("mscale"), parameters.get("mscale_all_dim")
        scaling = magnitude(factor, scale) / magnitude(factor, of_all) if scale and of_all else magnitude(factor, 1.0)
    return Scaled(1.0 / (factor * periods) * (1 - kept) + 1.0 / periods * kept, scaling)


def long(parameters: Mapping[str, Any], dimensions: int, context: int, factors: Sequence[float]) -> Scaled:
    """LongRoPE (Ding et al., 2024): each pair's frequency divided by a factor of its own, and attention sharpened.
    A missing factor follows from `context`, the extended one.
    """
    factor, scaling = _factor(parameters, context), parameters.get("attention_factor")
    if scaling is None:
        original = parameters["original_max_position_embeddings"]
        scaling = 1.0 if factor <= 1.0 else math.sqrt(1 + math.log(factor) / math.log(original))
    each = torch.tensor(factors, dtype=torch.float32)
    return Scaled(1.0 / (each * _periods(parameters["rope_theta"], dimensions)), scaling)


def _periods(theta: float, dimensions: int) -> Tensor:
    exponents = torch.arange(0, dimensions, 2, dtype=torch.int64).to(torch.float32) / dimensions
    periods: Tensor = theta**exponents
    return periods


def _factor(parameters: Mapping[str, Any], context: int) -> float:
    said: float | None = parameters.get("factor")
    return context / parameters["original_max_position_embeddings"] if said is None else said


def magnitude(factor: float, scale: float) -> float:
    """YaRN's factor that sharpens attention for contexts `factor` times as long."""
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0
