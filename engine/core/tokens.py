"""How a sequence gains tokens: sampled ones, and those that its grammar forces.

Forced tokens are appended as they are found and computed like a prompt's, without sampling (llguidance calls them
fast-forward tokens). Where a sample is still unread when they are found, it is the first of them: its mask allows only
that token, and reading it changes nothing.

A sample of NO_TOKEN ends its sequence: its logits are broken.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from thothy_ai.engine.api import FinishReason
from thothy_ai.engine.errors import EngineError, NoFiniteScoreError
from thothy_ai.engine.grammar import Grammar, fill_masks
from thothy_ai.engine.scheduling.sequence import Sequence
from thothy_ai.kernels.sampling import NO_TOKEN

_BITS = torch.tensor([1 << bit for bit in range(32)], dtype=torch.int64).to(torch.int32)


def bitmask(members: Seq[tuple[Sequence, int]], vocab_size: int) -> Tensor | None:
    """Allowed tokens of sampling members [R, ceil(vocab/32)] int32, or None where no member has a grammar.

    `members` [R] are sequences with the positions of the tokens to be sampled. Where the token at that position is
    forced, and thus known already, only that one is allowed.
    """
    if all(sequence.request.grammar is None for sequence, _ in members):
        return None
    shape = (len(members), -(-vocab_size // 32))
    mask = torch.full(shape, -1, dtype=torch.int32, pin_memory=torch.cuda.is_initialized())  # sent without a copy
    grammars: list[tuple[int, Grammar]] = []
    for row, (sequence, position) in enumerate(members):
        grammar = sequence.request.grammar
        if position < len(sequence.tokens):
            _allow_only(mask[row], sequence.tokens[position])
        elif grammar is not None and sequence.finish_reason is None:
            grammars.append((row, grammar))
    fill_masks(mask, grammars)
    return mask


def take_sample(sequence: Sequence, position: int, token: int, eos: frozenset[int]) -> None:
    """Append the token sampled for `position` and what is forced after it; set why the sequence ends, if it does."""
    if token == NO_TOKEN:
        sequence.broken = True
        sequence.finish(FinishReason.ABORTED, _no_finite_score(sequence, position))
    if position < len(sequence.tokens):
        return
    sequence.pending -= 1
    if sequence.finish_reason is not None:
        return
    if token in eos and not sequence.request.sampling.ignore_eos:
        sequence.finish(FinishReason.STOP)
        return
    sequence.tokens.append(token)
    _advance(sequence, token)
    _end_at_length(sequence)


def take_forced(sequence: Sequence) -> None:
    """Append the tokens that are forced next; a grammar's failure ends this sequence alone."""
    grammar = sequence.request.grammar
    if grammar is None:
        return
    try:
        _append_forced(sequence, grammar)
    except EngineError as error:
        sequence.finish(FinishReason.ABORTED, error)


def _append_forced(sequence: Sequence, grammar: Grammar) -> None:
    forced = grammar.forced()[: sequence.max_tokens - sequence.output_tokens]
    if not forced:
        return
    for token in forced:
        grammar.advance(token)
    sequence.tokens += forced
    sequence.pending = 0
    if grammar.finished:
        sequence.finish(FinishReason.STOP)
    _end_at_length(sequence)


def _advance(sequence: Sequence, token: int) -> None:
    """Move the grammar past a sampled token and the tokens that are forced after it."""
    grammar = sequence.request.grammar
    if grammar is None:
        return
    try:
        grammar.advance(token)
    except EngineError as error:
        sequence.finish(FinishReason.ABORTED, error)
        return
    if grammar.finished:
        sequence.finish(FinishReason.STOP)
    else:
        take_forced(sequence)


def _end_at_length(sequence: Sequence) -> None:
    if sequence.output_tokens >= sequence.max_tokens:
        sequence.finish(FinishReason.LENGTH)


def _allow_only(row: Tensor, token: int) -> None:
    row.zero_()
    row[token // 32] = _BITS[token % 32]


def _no_finite_score(sequence: Sequence, position: int) -> NoFiniteScoreError:
    place = position - sequence.prompt_tokens + 1
    return NoFiniteScoreError(
        f"output token {place} has no finite score: a weight is broken, a number overflows in the model's type, or "
        "nothing is allowed"
    )
