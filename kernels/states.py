"""The states that recurrent layers keep per row, instead of keys and values.

A row's slot has the row's number. It has one state in every recurrent layer, which a step's members read and overwrite.
A member at position 0 begins with an empty state, whatever its slot holds. Slots after the rows' keep copies of states
for later.

Members of one row can follow each other in a step, at consecutive positions, and are computed in that order. Those with
several tokens can keep the state after them in a further slot (`AttentionBatch.keeps`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


class StateShape(NamedTuple):
    """Sizes of one slot: the last `kept` inputs of a short convolution over `channels`, and for each of `heads` a
    matrix of `values` by `keys`; there are none without heads.
    """

    channels: int
    kept: int
    heads: int = 0
    values: int = 0
    keys: int = 0


class LayerState(NamedTuple):
    """One layer's states: `inputs` [slots, kept, channels], the oldest first, in the model's type, and `memory`
    [slots, heads, values, keys], or None.
    """

    inputs: Tensor
    memory: Tensor | None


@dataclass(frozen=True, slots=True)
class Convolution:
    """A causal convolution, separate for each channel, over a token and those before it; followed by SiLU if `silu`.

    `weight` [channels, width], `bias` [channels] or none.
    """

    weight: Tensor
    bias: Tensor | None = None
    silu: bool = True


@dataclass(frozen=True, slots=True)
class DeltaGates:
    """How a head forgets and learns, each [heads] float32: a token's state decays by exp(rate * softplus(a + offset)),
    rate being negative, and learns by sigmoid(b).
    """

    rate: Tensor
    offset: Tensor


@dataclass(frozen=True, slots=True)
class SpaceGates:
    """Of a state space, each [heads] float32: a token's step is softplus(dt + offset), its state decays by exp(rate *
    step), rate being negative, and its value times `skip` is added to what is read.
    """

    rate: Tensor
    offset: Tensor
    skip: Tensor
