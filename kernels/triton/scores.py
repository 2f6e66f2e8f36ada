"""Scores that only some rows of a step ask for, in Triton: penalties and biases, and log-probabilities.

The tokens of each row are counted anew in each step from its token ids, which the device writes as it samples them.
The counts are therefore right even if the host has not read the latest tokens yet, and after a preemption.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.sampling import COLUMNS, Biases, Column, SamplingBatch, TokenLogprobs

_COLUMNS, _PENALTY = tl.constexpr(COLUMNS), tl.constexpr(int(Column.PENALTY))
_FREQUENCY, _PRESENCE = tl.constexpr(int(Column.FREQUENCY)), tl.constexpr(int(Column.PRESENCE))
_PROMPT_TOKENS = tl.constexpr(int(Column.PROMPT_TOKENS))
_IN_PROMPT = tl.constexpr(1 << 30)  # above any count
_COUNTED = 1024  # token ids counted per program
_CHANGED = 4096  # scores changed per program
_SUMMED = 8192  # scores read at a time per program
_WARPS = 8


def changed_scores(step: SamplingBatch, members: Tensor, biases: Biases) -> Tensor:
    """The scores [A, V] float32 of these members [A] int64 after bias, repetition, frequency and presence penalties.

    The mask is not applied; `biases` has the biases of all rows.
    """
    count, vocab = len(members), step.logits.shape[1]
    longest, entries = step.token_ids.shape[1], biases.tokens.shape[1]
    seen = torch.zeros(count, vocab, dtype=torch.int32, device=step.logits.device)
    scores = torch.zeros(count, vocab, dtype=torch.float32, device=step.logits.device)
    _gather_kernel[(count, triton.cdiv(longest, _COUNTED) + 1)](
        seen, scores, members, step.rows, step.positions, step.token_ids, step.table, *biases, vocab, longest, entries,
        COUNTED=_COUNTED, ENTRIES=triton.next_power_of_2(entries),
    )  # fmt: skip
    _change_kernel[(count, triton.cdiv(vocab, _CHANGED))](
        scores, seen, step.logits, members, step.rows, step.table, step.logits.stride(0), vocab,
        CHANGED=_CHANGED, num_warps=_WARPS,
    )  # fmt: skip
    return scores


def token_logprobs(logits: Tensor, members: Tensor, tokens: Tensor, top: int) -> TokenLogprobs:
    """Log-probabilities from logits [R, V] of the tokens [A] int64 chosen for these members [A] int64, and of the `top`
    likeliest tokens. For a negative token, which means none, the result is token 0's.
    """
    total = torch.empty(len(members), dtype=torch.float32, device=logits.device)
    chosen = torch.empty_like(total)
    _logprob_kernel[(len(members),)](
        total, chosen, logits, members, tokens, logits.stride(0), logits.shape[1], SUMMED=_SUMMED, num_warps=_WARPS
    )
    best, best_tokens = logits[members].topk(top, dim=-1)
    return TokenLogprobs(chosen, best_tokens, best.to(torch.float32) - total[:, None])


@triton.jit(do_not_specialize_on_alignment=["members", "rows", "positions"])
def _gather_kernel(
    seen,  # [A, V] int32, zeros: counts in the output, and a bit for tokens of the prompt
    scores,  # [A, V] float32, zeros: sums of biases
    members,
    rows,
    positions,
    token_ids,
    table,
    bias_tokens,
    bias_values,
    bias_untils,
    vocab,
    longest,
    entries,
    COUNTED: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    """Program (asking member, part): counts a part of the row's tokens; the last part adds its biases."""
    asking, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    member = tl.load(members + asking)
    row = tl.load(rows + member)
    known = tl.load(positions + member)
    if part == tl.num_programs(1) - 1:
        entry = tl.arange(0, ENTRIES)
        own = row * entries + entry
        holds = (entry < entries) & (known < tl.load(bias_untils + own, mask=entry < entries, other=0))
        biased = asking * vocab + tl.load(bias_tokens + own, mask=holds, other=0)
        tl.atomic_add(scores + biased, tl.load(bias_values + own, mask=holds, other=0.0), mask=holds, sem="relaxed")
    else:
        begin = part * COUNTED
        if begin < known:
            index = begin + tl.arange(0, COUNTED)
            token = tl.load(token_ids + row * longest + index, mask=index < known, other=0)
            prompt = tl.load(table + row * _COLUMNS + _PROMPT_TOKENS).to(tl.int64)
            at = seen + asking * vocab + token
            tl.atomic_add(at, 1, mask=(index >= prompt) & (index < known), sem="relaxed")
            tl.atomic_or(at, _IN_PROMPT, mask=(index < prompt) & (index < known), sem="relaxed")


@triton.jit(do_not_specialize_on_alignment=["members", "rows"])
def _change_kernel(scores, seen, logits, members, rows, table, stride, vocab, CHANGED: tl.constexpr):
    """Program (asking member, part): applies penalties to a part of its biased scores."""
    asking = tl.program_id(0).to(tl.int64)
    member = tl.load(members + asking)
    own = table + tl.load(rows + member) * _COLUMNS
    penalty = tl.load(own + _PENALTY).to(tl.float32)
    token = tl.program_id(1) * CHANGED + tl.arange(0, CHANGED)
    inside = token < vocab
    at = asking * vocab + token
    score = tl.load(logits + member * stride + token, mask=inside, other=0.0).to(tl.float32)
    score += tl.load(scores + at, mask=inside, other=0.0)
    found = tl.load(seen + at, mask=inside, other=0)
    score = tl.where(found != 0, tl.where(score < 0, score * penalty, score / penalty), score)
    count = (found & (_IN_PROMPT - 1)).to(tl.float32)
    score -= tl.load(own + _FREQUENCY).to(tl.float32) * count
    score -= tl.where(count > 0, tl.load(own + _PRESENCE).to(tl.float32), 0.0)
    tl.store(scores + at, score, mask=inside)


@triton.jit(do_not_specialize_on_alignment=["members", "tokens"])
def _logprob_kernel(total, chosen, logits, members, tokens, stride, vocab, SUMMED: tl.constexpr):
    """Program (asking member): the log-sum-exp of its scores, and its token's log-probability."""
    asking = tl.program_id(0)
    logits += tl.load(members + asking) * stride
    most = tl.full([SUMMED], float("-inf"), tl.float32)
    sums = tl.zeros([SUMMED], tl.float32)
    for begin in range(0, vocab, SUMMED):
        token = begin + tl.arange(0, SUMMED)
        score = tl.load(logits + token, mask=token < vocab, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(most, score)
        safe = tl.where(higher > float("-inf"), higher, 0.0)
        sums = sums * tl.exp(most - safe) + tl.exp(score - safe)
        most = higher
    top = tl.max(most)
    summed = top + tl.log(tl.sum(sums * tl.exp(most - top)))
    token = tl.maximum(tl.load(tokens + asking), 0)
    tl.store(total + asking, summed)
    tl.store(chosen + asking, tl.load(logits + token).to(tl.float32) - summed)
