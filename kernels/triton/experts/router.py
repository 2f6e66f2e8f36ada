"""The router in Triton: scores of all experts, and the few that a token goes to, in one pass over its logits."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.experts import GATE_ROWS, Routed, Routing
from thothy_ai.kernels.triton.tiles import power_of_two

_ELEMENTS = 256  # logits of a program of one warp, whose maxima wait for no other warp


def route(x: Tensor, weight: Tensor, bias: Tensor | None, correction: Tensor | None, routing: Routing) -> Routed:
    """Experts of tokens x [T, K] by the router's weight [E, K] and bias [E] or none; logits are float32.

    `correction` [E] float32 or none. With a shared expert, the weight is [E + GATE_ROWS, K].
    """
    if x.is_cuda and x.dtype != torch.float32:
        logits = torch.mm(x, weight.t(), out_dtype=torch.float32)  # never rounded to fewer bits
    else:
        logits = functional.linear(x.float(), weight.float())
    return choose(logits, bias, correction, routing)


def choose(logits: Tensor, bias: Tensor | None, correction: Tensor | None, routing: Routing) -> Routed:
    """Experts by logits [T, E] float32, to which the bias is added first; with a shared expert, [T, E + GATE_ROWS]."""
    tokens, columns = logits.shape
    experts, chosen = columns - GATE_ROWS * routing.shared, routing.experts_per_token
    routed = Routed(
        torch.empty(tokens, chosen, dtype=torch.int32, device=logits.device),
        torch.empty(tokens, chosen, dtype=torch.float32, device=logits.device),
    )
    width = power_of_two(experts)
    rows = max(1, _ELEMENTS // width)
    if tokens:
        _route_kernel[(triton.cdiv(tokens, rows),)](
            *routed, logits, bias, correction, tokens,
            EXPERTS=experts, COLUMNS=columns, WIDTH=width, ROWS=rows, PLACES=power_of_two(chosen),
            TOP_K=routing.top_k, SHARED=routing.shared, SOFTMAX=routing.scores == "softmax",
            RENORMALIZED=routing.renormalized, SCALE=routing.scale, GROUPS=routing.groups,
            GROUP_WIDTH=power_of_two(routing.groups), KEPT=routing.kept_groups, BEST=routing.best, num_warps=1,
        )  # fmt: skip
    return routed


@triton.jit(do_not_specialize=["tokens"])
def _route_kernel(
    experts, weights, logits, bias, correction, tokens,
    EXPERTS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, PLACES: tl.constexpr,
    TOP_K: tl.constexpr, SHARED: tl.constexpr, SOFTMAX: tl.constexpr, RENORMALIZED: tl.constexpr, SCALE: tl.constexpr,
    GROUPS: tl.constexpr, GROUP_WIDTH: tl.constexpr, KEPT: tl.constexpr,
    BEST: tl.constexpr,  # scores of a group that are added up, one or two
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    real = (column < EXPERTS) & (row >= 0)
    logit = tl.load(logits + row * COLUMNS + column, mask=(row < tokens) & real, other=0.0)
    if bias is not None:
        logit += tl.load(bias + column, mask=column < EXPERTS, other=0.0).to(tl.float32)
    if SOFTMAX:  # not a number where a logit is not finite
        power = tl.exp(logit - tl.max(tl.where(real, logit, float("-inf")), 1)[:, None])
        power = tl.where(real, power, 0.0)
        scores = power / tl.sum(power, 1)[:, None]
    else:
        scores = tl.sigmoid(logit)
    ranks = scores
    if correction is not None:
        ranks += tl.load(correction + column, mask=column < EXPERTS, other=0.0)
    ranks = tl.where(ranks >= float("-inf"), ranks, float("inf"))  # a NaN is the highest, as torch sorts it
    if GROUPS > 1:
        ranks = _within_kept_groups(ranks, column, EXPERTS // GROUPS, GROUPS, GROUP_WIDTH, KEPT, BEST)
    place = tl.arange(0, PLACES)[None, :]
    chosen = tl.zeros([ROWS, PLACES], tl.int32)
    worth = tl.zeros([ROWS, PLACES], tl.float32)
    for turn in range(TOP_K):
        expert = _first_of_the_highest(ranks, real, column, WIDTH)
        here = column == expert
        chosen = tl.where(place == turn, expert, chosen)
        worth = tl.where(place == turn, tl.sum(tl.where(here, scores, 0.0), 1)[:, None], worth)
        real = real & (column != expert)
    if RENORMALIZED:
        worth /= tl.sum(worth, 1)[:, None]
    worth *= SCALE
    if SHARED:
        gate = tl.load(logits + row * COLUMNS + EXPERTS, mask=row < tokens, other=0.0)
        chosen = tl.where(place == TOP_K, EXPERTS, chosen)
        worth = tl.where(place == TOP_K, tl.sigmoid(gate), worth)
    inside = (row < tokens) & (place < TOP_K + SHARED)
    at = row * (TOP_K + SHARED) + place
    tl.store(experts + at, chosen, mask=inside)
    tl.store(weights + at, worth, mask=inside)


@triton.jit
def _first_of_the_highest(ranks, free, column, WIDTH: tl.constexpr):
    """The column [ROWS, 1] of the highest rank among those that are free."""
    best = tl.max(tl.where(free, ranks, float("-inf")), 1)[:, None]
    return tl.min(tl.where(free & (ranks == best), column, WIDTH), 1)[:, None]


@triton.jit
def _within_kept_groups(
    ranks, column, SIZE: tl.constexpr, GROUPS: tl.constexpr, GROUP_WIDTH: tl.constexpr, KEPT: tl.constexpr,
    BEST: tl.constexpr,
):  # fmt: skip
    """Ranks [ROWS, WIDTH], minus infinity outside the groups that take part."""
    WIDTH: tl.constexpr = ranks.shape[1]
    group = tl.arange(0, GROUP_WIDTH)[None, :]
    sums = tl.full([ranks.shape[0], GROUP_WIDTH], float("-inf"), tl.float32)
    for each in range(GROUPS):
        inside = (column // SIZE == each) & (ranks >= float("-inf"))
        first = _first_of_the_highest(ranks, inside, column, WIDTH)
        best = tl.max(tl.where(inside, ranks, float("-inf")), 1)[:, None]
        if BEST == 2:
            best += tl.max(tl.where(inside & (column != first), ranks, float("-inf")), 1)[:, None]
        sums = tl.where(group == each, best, sums)
    free = (group < GROUPS) & (sums >= float("-inf"))
    kept = (column < 0) & (ranks >= float("-inf"))
    for _turn in range(KEPT):
        winner = _first_of_the_highest(sums, free, group, GROUP_WIDTH)
        free = free & (group != winner)
        kept = kept | (column // SIZE == winner)
    return tl.where(kept, ranks, float("-inf"))
