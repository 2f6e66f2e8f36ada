"""Sampling parameters of each row as a table on the device, and the batch that tokens are chosen from.

Order and meaning are those of transformers: bias, repetition penalty, mask, temperature, then top-k, top-p and min-p.
Frequency and presence penalties, which transformers does not have, follow the repetition penalty.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from typing import NamedTuple, Protocol

from torch import Tensor

NO_TOKEN = -1  # of a row whose highest score is not finite: a NaN, an overflow, no token allowed
# Kinds of rows: the highest score, a draw from all tokens, from what top-p without top-k leaves, or other filters do.
KINDS = GREEDY, UNFILTERED, NUCLEUS, FILTERED = range(4)
COLUMNS = 11
FOREVER = 2**31 - 1  # a position that no token has

_MIN_TEMPERATURE = 1e-5  # below it a softmax is an argmax in float32, and dividing by it may overflow


class Column(IntEnum):
    """Columns of the table of the rows' parameters [rows, COLUMNS] float64, which holds each of them exactly.

    `TOP_K` is the vocabulary's size for none; a seed in [0, 2**63) is split into two 32-bit halves.
    """

    TEMPERATURE = 0
    TOP_P = 1
    MIN_P = 2
    PENALTY = 3
    SEED_LOW = 4
    SEED_HIGH = 5
    TOP_K = 6
    KIND = 7
    FREQUENCY = 8
    PRESENCE = 9
    PROMPT_TOKENS = 10  # output tokens come after this many


def parameters(
    *,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    seed: int = 0,
    frequency_penalty: float = 0.0,
    presence_penalty: float = 0.0,
    prompt_tokens: int = 0,
    vocab_size: int,
) -> list[float]:
    """A row of the table. Filters that are off are 0, 1 and 0; a temperature near 0 is greedy."""
    limit = min(top_k or vocab_size, vocab_size)
    if temperature < _MIN_TEMPERATURE:
        kind = GREEDY
    elif top_p < 1.0 and limit == vocab_size:
        kind = NUCLEUS
    else:
        kind = FILTERED if limit < vocab_size or min_p else UNFILTERED
    values = {
        Column.TEMPERATURE: temperature,
        Column.TOP_P: top_p,
        Column.MIN_P: min_p,
        Column.PENALTY: repetition_penalty,
        Column.SEED_LOW: seed & 0xFFFF_FFFF,
        Column.SEED_HIGH: seed >> 32,
        Column.TOP_K: limit,
        Column.KIND: kind,
        Column.FREQUENCY: frequency_penalty,
        Column.PRESENCE: presence_penalty,
        Column.PROMPT_TOKENS: prompt_tokens,
    }
    return [values[column] for column in Column]


class SamplingBatch(NamedTuple):
    """The inputs to the choice of tokens for a step's R members, all on one device.

    `logits` [R, V] of any floating-point type, never changed; `rows` [R] int64 into `token_ids` [rows, L] int32 and
    `table` [rows, COLUMNS] float64; `positions` [R] int64 of the tokens to be chosen, which is how many of a row's
    tokens are real; `bitmask` [R, ceil(V / 32)] int32 with a bit set for each allowed token, lowest first, or None.
    """

    logits: Tensor
    rows: Tensor
    positions: Tensor
    token_ids: Tensor
    bitmask: Tensor | None
    table: Tensor


class Biases(NamedTuple):
    """Biases of single tokens' scores: entry e of a row adds `values[row, e]` to the score of `tokens[row, e]` while
    the position of the token to be chosen is less than `untils[row, e]`: FOREVER for a bias, 0 for an unused entry. All
    [rows, E]: int32, float32, int32. A token has at most two entries.
    """

    tokens: Tensor
    values: Tensor
    untils: Tensor


class TokenLogprobs(NamedTuple):
    """Log-probabilities of a step's chosen tokens [A] float32, and the likeliest K: tokens [A, K] int64, the likeliest
    first, and their log-probabilities [A, K] float32.
    """

    chosen: Tensor
    top_tokens: Tensor
    top: Tensor


class Work(NamedTuple):
    """Which kinds of rows a step has, so that nothing is launched for absent ones. The table has each row's kind."""

    unfiltered: bool
    nucleus: bool
    filtered: bool  # a search: FILTERED, and NUCLEUS where no trial decides
    others: bool  # greedy or unfiltered
    penalized: bool

    @classmethod
    def of(cls, kinds: Collection[int], *, penalized: bool) -> Work:
        """The work of choosing for rows of these kinds."""
        return cls(
            unfiltered=UNFILTERED in kinds,
            nucleus=NUCLEUS in kinds,
            filtered=FILTERED in kinds or NUCLEUS in kinds,
            others=GREEDY in kinds or UNFILTERED in kinds,
            penalized=penalized,
        )


class TokenChooser(Protocol):
    """Chooses tokens for the members of a step."""

    def __call__(self, step: SamplingBatch, work: Work) -> Tensor:
        """One token for each member [R] int64: the first of equal scores. It depends on the member alone.

        NO_TOKEN where a score that is allowed is NaN or infinite, or none is allowed.
        """
        ...
