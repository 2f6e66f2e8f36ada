"""What the sampling kernels share: reading a row's scores tile by tile, and choosing the best token of tiles.

A tile is LINES lines of LINE adjacent tokens; a thread owns whole lines, so sums along them need no exchange.
"""

from __future__ import annotations

import triton
import triton.language as tl

from thothy_ai.kernels.sampling import COLUMNS, NO_TOKEN

_COLUMNS, _NO_TOKEN = tl.constexpr(COLUMNS), tl.constexpr(NO_TOKEN)
_INF = tl.constexpr(float("inf"))
_MAX_INT32 = tl.constexpr(2**31 - 1)


@triton.jit
def parameter(table, row, column: tl.constexpr):
    """One parameter of a row (kernels/sampling.py has the columns), float64."""
    return tl.load(table + row * _COLUMNS + column)


@triton.jit
def load_scores(logits, allowed, seen, penalty, first, vocab, LINE: tl.constexpr):
    """A row's penalized and masked logits of tokens first[n] + 0 to LINE - 1, [N, LINE] float32; -inf past the end.

    `allowed` and `seen` are the row's bits, or None; first [N] are multiples of LINE, and LINE divides 32.
    """
    token = first[:, None] + tl.arange(0, LINE)[None, :]
    scores = tl.load(logits + token, mask=token < vocab, other=float("-inf")).to(tl.float32)
    if seen is not None:
        was_seen = _bits(seen, first, token, vocab)
        scores = tl.where(was_seen, tl.where(scores < 0, scores * penalty, scores / penalty), scores)
    if allowed is not None:
        scores = tl.where(_bits(allowed, first, token, vocab), scores, float("-inf"))
    return scores


@triton.jit
def score_of(logits, allowed, seen, penalty, token, vocab, LINE: tl.constexpr):
    """The score of one token, as `load_scores` has it."""
    first = tl.zeros([1], tl.int32) + (token // LINE * LINE).to(tl.int32)
    scores = load_scores(logits, allowed, seen, penalty, first, vocab, LINE)
    return tl.sum(tl.where(first[:, None] + tl.arange(0, LINE)[None, :] == token, scores, 0.0))


@triton.jit
def _bits(words, first, token, vocab):
    word = tl.load(words + first // 32, mask=first < vocab, other=0)
    return ((word[:, None] >> (token & 31)) & 1) != 0


@triton.jit
def first_best(values, tokens):
    """The highest value of a tile, NaN if any is, and the lowest token that has it."""
    best = tl.where(tl.min((values <= _INF).to(tl.int32)) > 0, tl.max(values), float("nan"))
    return best, tl.min(tl.where(values == best, tokens, _MAX_INT32))


@triton.jit
def choice(best, token):
    """The token whose score is the best, int64; NO_TOKEN if that is not finite."""
    return tl.where(tl.abs(best) < _INF, token, _NO_TOKEN).to(tl.int64)
