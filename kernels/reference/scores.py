"""Scores that only some rows of a step ask for: changed ones, and log-probabilities. The reference."""

from __future__ import annotations

import torch
from torch import Tensor

from thothy_ai.kernels.reference.sampling import penalize_repetition
from thothy_ai.kernels.sampling import Biases, Column, SamplingBatch, TokenLogprobs


def changed_scores(step: SamplingBatch, members: Tensor, biases: Biases) -> Tensor:
    """The scores [A, V] float32 of these members [A] int64 after bias, repetition, frequency and presence penalties.

    The mask is not applied; `biases` are those of all rows.
    """
    rows, known = step.rows[members], step.positions[members]
    columns = step.table[rows].to(torch.float32)
    scores = _biased(step.logits[members].to(torch.float32), rows, known, biases)
    token_ids = step.token_ids[rows, : int(known.max())]
    scores = penalize_repetition(scores, token_ids, known, columns[:, Column.PENALTY])
    counts = _output_counts(token_ids, columns[:, Column.PROMPT_TOKENS], known, scores)
    scores -= columns[:, Column.FREQUENCY, None] * counts
    return scores.sub_(columns[:, Column.PRESENCE, None] * (counts > 0))


def token_logprobs(logits: Tensor, members: Tensor, tokens: Tensor, top: int) -> TokenLogprobs:
    """Log-probabilities by logits [R, V] of tokens [A] int64 chosen for these members [A] int64, and of the `top`
    likeliest. Of a token that is none (negative), token 0's stands for it.
    """
    rows = logits[members].to(torch.float32)
    total = rows.logsumexp(dim=-1, keepdim=True)
    chosen = rows.gather(1, tokens.clamp(min=0)[:, None]) - total
    best, best_tokens = rows.topk(top, dim=-1)
    return TokenLogprobs(chosen.squeeze(1), best_tokens, best - total)


def _biased(scores: Tensor, rows: Tensor, known: Tensor, biases: Biases) -> Tensor:
    tokens, untils = biases.tokens[rows].to(torch.int64), biases.untils[rows]
    added = torch.where(known[:, None] < untils, biases.values[rows], 0.0)
    return scores.scatter_add_(1, tokens, added)


def _output_counts(token_ids: Tensor, prompt: Tensor, known: Tensor, scores: Tensor) -> Tensor:
    """How often each token occurs in each output [A, V] float32."""
    index = torch.arange(token_ids.shape[1], device=scores.device)
    output = (index >= prompt[:, None]) & (index < known[:, None])
    tokens = token_ids.to(torch.int64).where(output, 0)
    return torch.zeros_like(scores).scatter_add_(1, tokens, output.to(torch.float32))
