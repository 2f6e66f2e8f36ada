"""Changed scores and log-probabilities, which only some rows of a step need: the reference."""

from __future__ import annotations

import torch
from torch import Tensor

from thothy_ai.kernels.reference.sampling import penalize_repetition
from thothy_ai.kernels.sampling import Biases, Column, SamplingBatch, TokenLogprobs


def changed_scores(step: SamplingBatch, members: Tensor, biases: Biases) -> Tensor:
    """The scores [A, V] float32 of these members [A] int64 after bias, repetition, frequency and presence penalties.

    The mask is not applied. `biases` has all rows.
    """
    rows, known = step.rows[members], step.positions[members]
    columns = step.table[rows].to(torch.float32)
    scores = step.logits[members].to(torch.float32)
    bias = torch.where(known[:, None] < biases.untils[rows], biases.values[rows], 0.0)
    scores.scatter_add_(1, biases.tokens[rows].to(torch.int64), bias)
    token_ids = step.token_ids[rows, : int(known.max())]
    scores = penalize_repetition(scores, token_ids, known, columns[:, Column.PENALTY])
    index = torch.arange(token_ids.shape[1], device=scores.device)
    output = (index >= columns[:, Column.PROMPT_TOKENS, None]) & (index < known[:, None])
    output_tokens = token_ids.to(torch.int64).where(output, 0)
    counts = torch.zeros_like(scores).scatter_add_(1, output_tokens, output.to(torch.float32))
    scores -= columns[:, Column.FREQUENCY, None] * counts
    return scores.sub_(columns[:, Column.PRESENCE, None] * (counts > 0))


def token_logprobs(logits: Tensor, members: Tensor, tokens: Tensor, top: int) -> TokenLogprobs:
    """Log-probabilities of tokens [A] int64 chosen for members [A] int64 of logits [R, V], and of the `top` likeliest.

    A negative token gets the log-probability of token 0.
    """
    rows = logits[members].to(torch.float32)
    total = rows.logsumexp(dim=-1, keepdim=True)
    chosen = rows.gather(1, tokens.clamp(min=0)[:, None]) - total
    best, best_tokens = rows.topk(top, dim=-1)
    return TokenLogprobs(chosen.squeeze(1), best_tokens, best - total)
