"""Greedy choices and unfiltered draws: an argmax over a row's scores, with noise or without, in one launch.

A row is divided over several programs where rows are few; the last of them to arrive picks the best of their choices.
The highest of the same values does not depend on how they were divided.
"""

from __future__ import annotations

import triton
import triton.language as tl

from thothy_ai.kernels.sampling import GREEDY, UNFILTERED, Column
from thothy_ai.kernels.triton.arrival import last_to_arrive
from thothy_ai.kernels.triton.philox import gumbel, line_words
from thothy_ai.kernels.triton.sampling.scores import choice, first_best, load_scores, parameter

_UNFILTERED, _GREEDY = tl.constexpr(UNFILTERED), tl.constexpr(GREEDY)
_TEMPERATURE, _PENALTY, _KIND = (tl.constexpr(int(c)) for c in (Column.TEMPERATURE, Column.PENALTY, Column.KIND))
_SEED_LOW, _SEED_HIGH = (tl.constexpr(int(c)) for c in (Column.SEED_LOW, Column.SEED_HIGH))
_INF = tl.constexpr(float("inf"))


@triton.jit(do_not_specialize=["tiles_each"], do_not_specialize_on_alignment=["rows", "positions"])
def argmax_kernel(
    chosen,  # [R] int64, written where the row is greedy or unfiltered
    values,  # [max_rows, PARTS] float32, scratch
    tokens,  # [max_rows, PARTS] int32, scratch
    arrived,  # [max_rows] int32, zeros before and after
    positions,
    logits,  # [R, V]
    allowed,  # [R, words] int32 or None
    seen,  # [R, words] int32 or None
    rows,
    table,
    stride,
    vocab,
    words,
    tiles_each,
    NOISE: tl.constexpr,
    PARTS: tl.constexpr,
    LINES: tl.constexpr,
    LINE: tl.constexpr,
):
    """Program (member, part): the best of `tiles_each` tiles of a row, and the last to arrive: of all parts."""
    member = tl.program_id(0).to(tl.int64)
    part, parts = tl.program_id(1), tl.num_programs(1)
    row = tl.load(rows + member)
    kind = parameter(table, row, _KIND)
    if (kind == _GREEDY) | (kind == _UNFILTERED):
        logits += member * stride
        if allowed is not None:
            allowed += member * words
        if seen is not None:
            seen += member * words
        begin = part * tiles_each * (LINES * LINE)
        end = tl.minimum(begin + tiles_each * (LINES * LINE), vocab)
        penalty = parameter(table, row, _PENALTY).to(tl.float32)
        temperature = parameter(table, row, _TEMPERATURE).to(tl.float32)
        seed_low = parameter(table, row, _SEED_LOW).to(tl.int64).to(tl.uint32)
        seed_high = parameter(table, row, _SEED_HIGH).to(tl.int64).to(tl.uint32)
        position = tl.load(positions + member).to(tl.uint32)
        if NOISE and kind != _GREEDY:
            value, token = _highest(
                logits, allowed, seen, penalty, vocab, begin, end, 1.0 / temperature, seed_low, seed_high, position,
                True, LINES, LINE,
            )  # fmt: skip
        else:
            value, token = _highest(
                logits, allowed, seen, penalty, vocab, begin, end, 1.0, seed_low, seed_high, position,
                False, LINES, LINE,
            )  # fmt: skip
        if parts > 1:
            tl.store(values + member * PARTS + part, value)
            tl.store(tokens + member * PARTS + part, token)
            if last_to_arrive(arrived + member, parts):
                index = tl.arange(0, PARTS)
                of_parts = tl.load(values + member * PARTS + index, mask=index < parts, other=-_INF, volatile=True)
                theirs = tl.load(tokens + member * PARTS + index, mask=index < parts, other=vocab, volatile=True)
                value, token = first_best(of_parts, theirs)
                tl.store(chosen + member, choice(value, token))
        else:
            tl.store(chosen + member, choice(value, token))


@triton.jit
def _highest(
    logits, allowed, seen, penalty, vocab, begin, end, coldness, seed_low, seed_high, position,
    NOISE: tl.constexpr, LINES: tl.constexpr, LINE: tl.constexpr,
):  # fmt: skip
    """The highest score of tokens [begin, end), NaN if any is, and the lowest token that has it; over the temperature
    and with noise where a draw is wanted.
    """
    line = tl.arange(0, LINES) * LINE
    best = tl.full([LINES, LINE], -_INF, tl.float32)
    chosen = begin + line[:, None] + tl.arange(0, LINE)[None, :]
    for start in range(begin, end, LINES * LINE):
        first = start + line
        scores = load_scores(logits, allowed, seen, penalty, first, vocab, LINE)
        if NOISE:
            scores = scores * coldness + gumbel(line_words(first, seed_low, seed_high, position, LINE))
        token = first[:, None] + tl.arange(0, LINE)[None, :]
        chosen = tl.where(scores > best, token, chosen)
        best = tl.maximum(best, scores, propagate_nan=tl.PropagateNan.ALL)
    return first_best(best, chosen)
