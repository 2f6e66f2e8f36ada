"""Mixtures of experts (Shazeer et al., 2017): how tokens choose experts, and the weights of experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from torch import Tensor

from thothy_ai.kernels.fp8 import Quantized

MXFP4_BLOCK = 32  # numbers that share a scale
GATE_ROWS = 8  # of a router's weight; all but the first are zeros, because GEMMs write rows of 32 bytes fastest


class Mxfp4(NamedTuple):
    """Weights [E, N, K] in the OCP's microscaling format: e2m1 numbers, with an e8m0 scale for each 32 along K.

    `blocks` [E, N, K / 2] uint8: two numbers per byte, the first in the low half; `scales` [E, N, K / 32] uint8: the
    exponent of 2, plus 127. K is a multiple of 32.
    """

    blocks: Tensor
    scales: Tensor


ExpertMatrix = Tensor | Quantized | Mxfp4


@dataclass(frozen=True, slots=True)
class GatedActivation:
    """gate * sigmoid(alpha * (gate + cubic * gate ** 3)) * (up + offset); with a limit, gate is at most that and up
    within ±limit.
    """

    alpha: float = 1.0
    limit: float | None = None
    offset: float = 0.0
    cubic: float = 0.0


@dataclass(frozen=True, slots=True)
class SquaredReLU:
    """max(x, 0) ** 2 of every row: there are no gates."""


ExpertActivation = GatedActivation | SquaredReLU
SQUARED_RELU = SquaredReLU()
SILU = GatedActivation()
GELU_TANH = GatedActivation(alpha=1.5957691216057308, cubic=0.044715)  # approximated: 2 * sqrt(2 / pi)
CLAMPED_SWIGLU = GatedActivation(alpha=1.702, limit=7.0, offset=1.0)  # of GPT-OSS


@dataclass(frozen=True, slots=True, eq=False)
class ExpertWeights:
    """Weights of E experts: `gate_up` [E, 2N, K], gate in the first half; `down` [E, K, N]; biases [E, 2N] and [E, K].
    Without gates, `gate_up` is [E, N, K], and N is even.

    Both matrices have the same format. Scales of fp8 are by output: [E, 2N, 1] and [E, K, 1].
    """

    gate_up: ExpertMatrix
    down: ExpertMatrix
    gate_up_bias: Tensor | None = None
    down_bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Routing:
    """Each token goes to the `top_k` experts with the highest scores; ties go to the lower number.

    Scores are softmax or sigmoid of the logits, in float32; a correction [E], if there is one, is added for the choice
    only. Of several groups, equal runs of experts, only the `kept_groups` whose `best` highest scores, one or two, have
    the highest sums take part. The chosen scores are the weights: `renormalized` to a sum of one, then times `scale`.

    `shared`: every token also goes to expert E, by a weight that is the sigmoid of its gate. The gate is the first of
    GATE_ROWS rows that the router's weight has after those of the E experts that are chosen from.
    """

    top_k: int
    scores: Literal["softmax", "sigmoid"] = "softmax"
    renormalized: bool = True
    scale: float = 1.0
    groups: int = 1
    kept_groups: int = 1
    best: int = 2
    shared: bool = False

    @property
    def experts_per_token(self) -> int:
        return self.top_k + self.shared


class Routed(NamedTuple):
    """For T tokens: `experts` [T, k] int32, all different, the shared one last, and their `weights` [T, k] float32.

    A token whose logits are not finite goes to some experts, with weights that are not finite either.
    """

    experts: Tensor
    weights: Tensor


class Experts(Protocol):
    """The experts of one layer, with their weights and activation."""

    def __call__(self, x: Tensor, expert_ids: Tensor, expert_weights: Tensor) -> Tensor:
        """x [T, K] -> [T, K]: the results of each token's experts [T, k] int32, weighted by [T, k] and summed."""
        ...
