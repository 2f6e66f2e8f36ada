"""Draws from a nucleus, by trial: a token is drawn from all, and kept if it passes top-p and min-p.

With Gumbel noise, the best of all tokens is also the best of the nucleus, if it is in there. To check a single token
takes one reading of the row; to find the nucleus takes many (`filtered_kernel`). After a token that fails, only those
that score higher can be in the nucleus, and the next trial is among them. FlashInfer samples by rejection, too
(https://flashinfer.ai/2025/03/10/sampling.html), but with new noise each time; here it depends on the token alone, so
that the result is the one that a search gives.

A row is divided over several programs, as for an argmax, and the last of them to arrive decides. Sums are kept by
chunks, and thus have one order, however rows are divided.
"""

from __future__ import annotations

import triton
import triton.language as tl

from thothy_ai.kernels.sampling import NUCLEUS, Column
from thothy_ai.kernels.triton.arrival import last_to_arrive
from thothy_ai.kernels.triton.philox import gumbel, line_words
from thothy_ai.kernels.triton.sampling.scores import choice, first_best, load_scores, parameter, score_of

DECIDED, DRAWN, FAILED = range(3)  # states of a row: its token is final, is to be checked, is not in the nucleus
CHUNK = 4  # tiles

_DECIDED, _DRAWN, _FAILED = (tl.constexpr(state) for state in (DECIDED, DRAWN, FAILED))
_NUCLEUS, _CHUNK, _INF = tl.constexpr(NUCLEUS), tl.constexpr(CHUNK), tl.constexpr(float("inf"))
_TEMPERATURE, _TOP_P, _MIN_P = (tl.constexpr(int(c)) for c in (Column.TEMPERATURE, Column.TOP_P, Column.MIN_P))
_PENALTY, _KIND = tl.constexpr(int(Column.PENALTY)), tl.constexpr(int(Column.KIND))
_SEED_LOW, _SEED_HIGH = (tl.constexpr(int(c)) for c in (Column.SEED_LOW, Column.SEED_HIGH))
_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit(do_not_specialize=["tiles_each"], do_not_specialize_on_alignment=["rows", "positions"])
def draw_kernel(
    chosen,  # [R] int64
    states,  # [max_rows] int32, by member
    tops,  # [max_rows] float32: the highest score, written by the first trial
    values,  # [max_rows, PARTS] float32, scratch
    tokens,  # [max_rows, PARTS] int32, scratch
    highest,  # [max_rows, PARTS] float32, scratch
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
    AGAIN: tl.constexpr,
    PARTS: tl.constexpr,
    LINES: tl.constexpr,
    LINE: tl.constexpr,
):
    """Program (member, part): the best of some tiles, with noise; AGAIN, for a row that failed, and only of tokens that
    score higher than the one that did.
    """
    member = tl.program_id(0).to(tl.int64)
    part, parts = tl.program_id(1), tl.num_programs(1)
    row = tl.load(rows + member)
    wanted = parameter(table, row, _KIND) == _NUCLEUS
    if AGAIN:
        wanted = wanted & (tl.load(states + member) == _FAILED)
    if wanted:
        logits += member * stride
        if allowed is not None:
            allowed += member * words
        if seen is not None:
            seen += member * words
        penalty = parameter(table, row, _PENALTY).to(tl.float32)
        temperature = parameter(table, row, _TEMPERATURE).to(tl.float32)
        floor = tl.full([], -_INF, tl.float32)
        if AGAIN:
            floor = score_of(logits, allowed, seen, penalty, tl.load(chosen + member), vocab, LINE)
        begin = part * tiles_each * (LINES * LINE)
        value, token, top = _best_above(
            logits, allowed, seen, penalty, vocab, begin,
            tl.minimum(begin + tiles_each * (LINES * LINE), vocab), floor, 1.0 / temperature,
            parameter(table, row, _SEED_LOW).to(tl.int64).to(tl.uint32),
            parameter(table, row, _SEED_HIGH).to(tl.int64).to(tl.uint32),
            tl.load(positions + member).to(tl.uint32),
            AGAIN, LINES, LINE,
        )  # fmt: skip
        tl.store(values + member * PARTS + part, value)
        tl.store(tokens + member * PARTS + part, token)
        tl.store(highest + member * PARTS + part, top)
        if last_to_arrive(arrived + member, parts):
            index = member * PARTS + tl.arange(0, PARTS)
            there = tl.arange(0, PARTS) < parts
            of_parts = tl.load(values + index, mask=there, other=-_INF, volatile=True)
            theirs = tl.load(tokens + index, mask=there, other=vocab, volatile=True)
            value, token = first_best(of_parts, theirs)
            drawn = tl.abs(value) < _INF
            if AGAIN:  # if none scores higher, the search decides
                tl.store(chosen + member, token.to(tl.int64), mask=drawn)
                tl.store(states + member, _DRAWN, mask=drawn)
            else:
                tl.store(chosen + member, choice(value, token))
                tl.store(states + member, tl.where(drawn, _DRAWN, _DECIDED))
                tl.store(tops + member, tl.max(tl.load(highest + index, mask=there, other=-_INF, volatile=True)))


@triton.jit
def _best_above(
    logits, allowed, seen, penalty, vocab, begin, end, floor, coldness, seed_low, seed_high, position,
    SOME: tl.constexpr, LINES: tl.constexpr, LINE: tl.constexpr,
):  # fmt: skip
    """Gumbel-max over the scores above `floor` of tokens [begin, end): the best one and its token, -inf if there is
    none, NaN if a score is; and the highest score. SOME: few are above it, so that most tiles need no noise.
    """
    best = tl.full([LINES, LINE], -_INF, tl.float32)
    chosen = begin + (tl.arange(0, LINES) * LINE)[:, None] + tl.arange(0, LINE)[None, :]
    top = tl.full([LINES], -_INF, tl.float32)
    for start in range(begin, end, LINES * LINE):
        first = start + tl.arange(0, LINES) * LINE
        scores = load_scores(logits, allowed, seen, penalty, first, vocab, LINE)
        top = tl.maximum(top, tl.max(scores, 1))
        below = scores <= floor  # a NaN is not
        if not SOME or tl.min(below.to(tl.int32)) == 0:
            noise = gumbel(line_words(first, seed_low, seed_high, position, LINE))
            perturbed = tl.where(below, -_INF, scores * coldness + noise)
            token = first[:, None] + tl.arange(0, LINE)[None, :]
            chosen = tl.where(perturbed > best, token, chosen)
            best = tl.maximum(best, perturbed, propagate_nan=tl.PropagateNan.ALL)
    value, token = first_best(best, chosen)
    return value, token, tl.max(top)


@triton.jit(do_not_specialize=["chunks_each", "chunks"], do_not_specialize_on_alignment=["rows"])
def check_kernel(
    chosen,  # [R] int64
    states,  # [max_rows] int32, by member
    tops,  # [max_rows] float32
    sums,  # [max_rows, 2, chunks] float32, scratch: the mass, and that of tokens that score higher than the one drawn
    arrived,  # [max_rows] int32, zeros before and after
    logits,  # [R, V]
    allowed,  # [R, words] int32 or None
    seen,  # [R, words] int32 or None
    rows,
    table,
    stride,
    vocab,
    words,
    chunks_each,
    chunks,
    CHUNKS: tl.constexpr,
    LINES: tl.constexpr,
    LINE: tl.constexpr,
):
    """Program (member, part): weigh some chunks of a row whose token was drawn; the last to arrive judges it.

    A token passes top-p if those that score higher have less than a mass of p, or none, and min-p if it is likely
    enough beside the likeliest.
    """
    member = tl.program_id(0).to(tl.int64)
    part, parts = tl.program_id(1), tl.num_programs(1)
    row = tl.load(rows + member)
    if (parameter(table, row, _KIND) == _NUCLEUS) & (tl.load(states + member) == _DRAWN):
        logits += member * stride
        if allowed is not None:
            allowed += member * words
        if seen is not None:
            seen += member * words
        penalty = parameter(table, row, _PENALTY).to(tl.float32)
        temperature = parameter(table, row, _TEMPERATURE).to(tl.float32)
        top, rate = tl.load(tops + member), _LOG2_E / temperature
        score = score_of(logits, allowed, seen, penalty, tl.load(chosen + member), vocab, LINE)
        sums += member * 2 * chunks
        for chunk in range(part * chunks_each, tl.minimum((part + 1) * chunks_each, chunks)):
            mass, above = tl.zeros([LINES], tl.float32), tl.zeros([LINES], tl.float32)
            for tile in tl.static_range(_CHUNK):
                first = ((chunk * _CHUNK + tile) * LINES + tl.arange(0, LINES)) * LINE
                scores = load_scores(logits, allowed, seen, penalty, first, vocab, LINE)
                weight = tl.exp2((scores - top) * rate)
                mass += tl.sum(weight, 1)
                above += tl.sum(tl.where(scores > score, weight, 0.0), 1)
            tl.store(sums + chunk, tl.sum(mass))
            tl.store(sums + chunks + chunk, tl.sum(above))
        if last_to_arrive(arrived + member, parts):
            index = tl.arange(0, CHUNKS)
            mass = tl.sum(tl.load(sums + index, mask=index < chunks, other=0.0, volatile=True))
            above = tl.sum(tl.load(sums + chunks + index, mask=index < chunks, other=0.0, volatile=True))
            min_p = parameter(table, row, _MIN_P).to(tl.float32)
            top_p = parameter(table, row, _TOP_P).to(tl.float32)
            fails = (top_p < 1.0) & (above > 0.0) & (above >= top_p * mass)
            if min_p > 0.0:
                fails = fails | (score < top + tl.log(min_p) * temperature)
            tl.store(states + member, tl.where(fails, _FAILED, _DECIDED))
