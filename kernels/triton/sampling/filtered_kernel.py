"""Draws from what top-k, top-p and min-p leave, without a sort: a program reads one row several times. Rows with
top-p and no top-k come here only if no trial decided (`trial_kernels`).

All three filters keep the tokens whose score is at least some threshold. That of top-k is the highest score at or above
which k tokens lie, that of top-p the highest score at or above which a mass of p lies. Both are searched in the same
way: each reading of the row (from L2, after the first) weighs what lies above four pivots between the bounds, and
narrows the bounds to a fifth or to the scores that it met between them, until those are all equal. Sums have one
order, whatever else is in the batch.
"""

from __future__ import annotations

import triton
import triton.language as tl

from thothy_ai.kernels.sampling import FILTERED, NUCLEUS, Column
from thothy_ai.kernels.triton.philox import gumbel, line_words
from thothy_ai.kernels.triton.sampling.scores import choice, first_best, load_scores, parameter
from thothy_ai.kernels.triton.sampling.trial_kernels import DECIDED

_FILTERED, _NUCLEUS, _DECIDED = tl.constexpr(FILTERED), tl.constexpr(NUCLEUS), tl.constexpr(DECIDED)
_TEMPERATURE, _TOP_P, _MIN_P = (tl.constexpr(int(c)) for c in (Column.TEMPERATURE, Column.TOP_P, Column.MIN_P))
_PENALTY, _TOP_K, _KIND = (tl.constexpr(int(c)) for c in (Column.PENALTY, Column.TOP_K, Column.KIND))
_SEED_LOW, _SEED_HIGH = (tl.constexpr(int(c)) for c in (Column.SEED_LOW, Column.SEED_HIGH))
_INF = tl.constexpr(float("inf"))
_LOG2_E = tl.constexpr(1.4426950408889634)
_MAX_READINGS = tl.constexpr(100)  # bounds fall to a fifth each time; only infinite scores could keep them apart


@triton.jit(do_not_specialize_on_alignment=["rows", "positions"])
def filtered_kernel(
    chosen,  # [R] int64, written where the row is filtered, or has a nucleus and is not decided
    states,  # [max_rows] int32, by member
    positions,
    logits,  # [R, V]
    allowed,  # [R, words] int32 or None
    seen,  # [R, words] int32 or None
    rows,
    table,
    stride,
    vocab,
    words,
    LINES: tl.constexpr,
    LINE: tl.constexpr,
):
    """Program (member): the three thresholds one after another, then the draw."""
    member = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + member)
    kind = parameter(table, row, _KIND)
    if (kind == _FILTERED) | ((kind == _NUCLEUS) & (tl.load(states + member) != _DECIDED)):
        logits += member * stride
        if allowed is not None:
            allowed += member * words
        if seen is not None:
            seen += member * words
        penalty = parameter(table, row, _PENALTY).to(tl.float32)
        temperature = parameter(table, row, _TEMPERATURE).to(tl.float32)
        threshold = survival_threshold(
            logits, allowed, seen, penalty, vocab, temperature,
            parameter(table, row, _TOP_K).to(tl.float32),
            parameter(table, row, _TOP_P).to(tl.float32),
            parameter(table, row, _MIN_P).to(tl.float32),
            LINES, LINE,
        )  # fmt: skip
        best, token = _draw(
            logits, allowed, seen, penalty, vocab, threshold, 1.0 / temperature,
            parameter(table, row, _SEED_LOW).to(tl.int64).to(tl.uint32),
            parameter(table, row, _SEED_HIGH).to(tl.int64).to(tl.uint32),
            tl.load(positions + member).to(tl.uint32),
            LINES, LINE,
        )  # fmt: skip
        tl.store(chosen + member, choice(best, token))


@triton.jit
def survival_threshold(
    logits, allowed, seen, penalty, vocab, temperature, top_k, top_p, min_p,
    LINES: tl.constexpr, LINE: tl.constexpr,
):  # fmt: skip
    """The lowest score that is kept, before it is divided by the temperature.

    inf if all are masked, or if the highest is not finite.
    """
    threshold, top = _bounds(logits, allowed, seen, penalty, vocab, LINES, LINE)
    if top == _INF:
        threshold = top
    if threshold < top:  # otherwise all that are not masked are equal
        if top_k < vocab:
            threshold = _search(logits, allowed, seen, penalty, vocab, threshold, top, 0.0, top_k, True, LINES, LINE)
        if top_p < 1.0:
            rate = _LOG2_E / temperature
            threshold = _search(logits, allowed, seen, penalty, vocab, threshold, top, rate, top_p, False, LINES, LINE)
        if min_p > 0.0:
            threshold = tl.maximum(threshold, top + tl.log(min_p) * temperature)
    return threshold


@triton.jit
def _bounds(logits, allowed, seen, penalty, vocab, LINES: tl.constexpr, LINE: tl.constexpr):
    """The lowest and the highest score; inf and -inf if all are masked. A NaN counts as inf."""
    lowest = tl.full([LINES], _INF, tl.float32)
    top = tl.full([LINES], -_INF, tl.float32)
    for begin in range(0, vocab, LINES * LINE):
        first = begin + tl.arange(0, LINES) * LINE
        scores = load_scores(logits, allowed, seen, penalty, first, vocab, LINE)
        top = tl.maximum(top, tl.max(tl.where(scores <= _INF, scores, _INF), 1))
        lowest = tl.minimum(lowest, tl.min(tl.where(scores > -_INF, scores, _INF), 1))
    return tl.min(lowest), tl.max(top)


@triton.jit
def _search(
    logits, allowed, seen, penalty, vocab, low, top, rate, target,
    COUNTING: tl.constexpr, LINES: tl.constexpr, LINE: tl.constexpr,
):  # fmt: skip
    """The highest score at or above which the weight is `target` or more; the lowest, `low`, if there is none.

    COUNTING, each token weighs 1; otherwise 2 ** ((score - top) * rate), and the target is a share of all
    from `low` on.
    """
    end = top + tl.abs(top) * 1e-6 + 1e-30  # what is sought lies in [low, end)
    smallest, largest = low, top  # of the scores there
    total = target
    readings = 0
    while (smallest < largest) & (readings < _MAX_READINGS):
        step = (end - low) * 0.2
        p1, p2, p3, p4 = low + step, low + step * 2, low + step * 3, low + step * 4
        w0, w1, w2, w3, w4, smallest, largest = _weigh(
            logits, allowed, seen, penalty, vocab, low, p1, p2, p3, p4, end, top, rate, COUNTING, LINES, LINE
        )
        if not COUNTING:
            total = tl.where(readings == 0, target * w0, total)
        end = tl.where(
            w1 < total, p1, tl.where(w2 < total, p2, tl.where(w3 < total, p3, tl.where(w4 < total, p4, end)))
        )
        low = tl.where(
            w4 >= total, p4, tl.where(w3 >= total, p3, tl.where(w2 >= total, p2, tl.where(w1 >= total, p1, low)))
        )
        readings += 1
    return smallest


@triton.jit
def _weigh(
    logits, allowed, seen, penalty, vocab, low, p1, p2, p3, p4, end, top, rate,
    COUNTING: tl.constexpr, LINES: tl.constexpr, LINE: tl.constexpr,
):  # fmt: skip
    """The weights at or above `low` and four pivots, and the smallest and the largest score in [low, end)."""
    w0 = tl.zeros([LINES], tl.float32)
    w1, w2, w3, w4 = w0, w0, w0, w0
    smallest = tl.full([LINES], _INF, tl.float32)
    largest = tl.full([LINES], -_INF, tl.float32)
    for begin in range(0, vocab, LINES * LINE):
        first = begin + tl.arange(0, LINES) * LINE
        scores = load_scores(logits, allowed, seen, penalty, first, vocab, LINE)
        weight = tl.full([LINES, LINE], 1.0, tl.float32) if COUNTING else tl.exp2((scores - top) * rate)
        w0 += tl.sum(tl.where(scores >= low, weight, 0.0), 1)
        w1 += tl.sum(tl.where(scores >= p1, weight, 0.0), 1)
        w2 += tl.sum(tl.where(scores >= p2, weight, 0.0), 1)
        w3 += tl.sum(tl.where(scores >= p3, weight, 0.0), 1)
        w4 += tl.sum(tl.where(scores >= p4, weight, 0.0), 1)
        smallest = tl.minimum(smallest, tl.min(tl.where(scores >= low, scores, _INF), 1))
        largest = tl.maximum(largest, tl.max(tl.where(scores < end, scores, -_INF), 1))
    return tl.sum(w0), tl.sum(w1), tl.sum(w2), tl.sum(w3), tl.sum(w4), tl.min(smallest), tl.max(largest)


@triton.jit
def _draw(
    logits, allowed, seen, penalty, vocab, threshold, coldness, seed_low, seed_high, position,
    LINES: tl.constexpr, LINE: tl.constexpr,
):  # fmt: skip
    """Gumbel-max over the scores from the threshold on: the best one and its token. The best of none is -inf."""
    best = tl.full([LINES, LINE], -_INF, tl.float32)
    chosen = tl.zeros([LINES, LINE], tl.int32)
    for begin in range(0, vocab, LINES * LINE):
        first = begin + tl.arange(0, LINES) * LINE
        scores = load_scores(logits, allowed, seen, penalty, first, vocab, LINE)
        survives = scores >= threshold
        if tl.max(survives.to(tl.int32)) > 0:
            noise = gumbel(line_words(first, seed_low, seed_high, position, LINE))
            perturbed = tl.where(survives, scores * coldness + noise, -_INF)
            token = first[:, None] + tl.arange(0, LINE)[None, :]
            chosen = tl.where(perturbed > best, token, chosen)
            best = tl.maximum(best, perturbed)
    return first_best(best, chosen)
