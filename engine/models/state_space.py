"""Reads the sizes of Mamba-2's state spaces from a configuration, and builds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from torch import Tensor

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.layers.recurrence import StateSpace
from thothy_ai.kernels.states import SpaceGates, StateShape

_NO_LIMIT = [0.0, float("inf")]


@dataclass(frozen=True, slots=True)
class SpaceSizes:
    """Each of `groups` of heads shares B and C; the convolution sees `width` tokens.

    `bias`: whether the projection into the space has one; `output_bias`: the same for the one out of it. Results are
    normalized in `norm_groups`; 0: they are gated only. ModelLoadError for sizes that do not divide.
    """

    heads: int
    values: int
    groups: int
    keys: int
    width: int
    bias: bool
    output_bias: bool
    convolution_bias: bool
    norm_groups: int

    @classmethod
    def read(cls, config: Configuration, *, output_bias: bool, norm_groups: int) -> Self:
        """Read the fields that Granite 4 and Falcon-H1 have in common."""
        require_no_limit(config.time_step_limit)
        return cls(
            heads=config.mamba_n_heads,
            values=config.mamba_d_head,
            groups=config.mamba_n_groups,
            keys=config.mamba_d_state,
            width=config.mamba_d_conv,
            bias=config.mamba_proj_bias,
            output_bias=output_bias,
            convolution_bias=config.mamba_conv_bias,
            norm_groups=norm_groups,
        )

    def __post_init__(self) -> None:
        sizes = (self.heads, self.values, self.groups, self.keys, self.width - 1)
        if any(not isinstance(size, int) or size < 1 for size in sizes) or self.heads % self.groups:
            raise ModelLoadError(
                f"a state space of {self.heads} heads of {self.values} in {self.groups} groups, with states of "
                f"{self.keys} and a convolution of {self.width}, does not divide"
            )

    @property
    def inner(self) -> int:
        return self.heads * self.values

    @property
    def state(self) -> StateShape:
        channels = self.inner + 2 * self.groups * self.keys
        return StateShape(channels, self.width - 1, self.heads, self.values, self.keys)

    def build(self, build: ModelBuilder, prefix: str, factors: Tensor | None = None) -> StateSpace:
        """`factors`: multipliers of the rows of the projection into the space."""
        hidden, channels = build.shape.hidden_size, self.state.channels
        offset, skip = (build.exact(prefix + name, self.heads) for name in ("dt_bias", "D"))
        return StateSpace(
            projection=build.linear({prefix + "in_proj": self.inner + channels + self.heads}, hidden, bias=self.bias),
            convolution=build.taps(prefix + "conv1d", channels, self.width, bias=self.convolution_bias),
            gates=SpaceGates(build.rates(prefix + "A_log", self.heads), offset, skip),
            norm=build.vector(prefix + "norm.weight", self.inner) if self.norm_groups else None,
            norm_groups=self.norm_groups,
            norm_eps=build.shape.norm_eps,
            output=build.linear({prefix + "out_proj": hidden}, self.inner, bias=self.output_bias),
            factors=factors,
        )


def require_no_limit(limit: object) -> None:
    """UnsupportedModelError if a `time_step_limit` bounds the steps of state spaces."""
    if isinstance(limit, list) and limit != _NO_LIMIT:
        raise UnsupportedModelError(f"a time_step_limit of {limit} is not implemented")
