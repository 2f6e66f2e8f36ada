"""How a sequence gains tokens: sampled ones, and those that its grammar leaves no choice about.

Forced tokens are appended as they are found and computed like a prompt's, without sampling (llguidance calls them
fast-forward tokens). Where a sample is still unread when they are found, it is the first of them: its mask allows that
one only, and reading it changes nothing.

A sample that is no token ends its sequence: its logits are broken.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from thothy_ai.engine.api import FinishReason
from thothy_ai.engine.errors import EngineError, NoFiniteScoreError
from thothy_ai.engine.grammar import Grammar, fill_masks
from thothy_ai.engine.scheduling.scheduler import Scheduled
from thothy_ai.engine.scheduling.sequence import Sequence
from thothy_ai.kernels.sampling import NO_TOKEN

_BITS = torch.tensor([1 << bit for bit in range(32)], dtype=torch.int64).to(torch.int32)


def bitmask(samplers: Seq[Scheduled], vocab_size: int) -> Tensor | None:
    """Allowed tokens of sampling members [R, ceil(vocab/32)] int32, or None where no member has a grammar.

    Where a member's next token is forced and known already, it is that one only.
    """
    if all(member.sequence.request.grammar is None for member in samplers):
        return None
    shape = (len(samplers), -(-vocab_size // 32))
    mask = torch.full(shape, -1, dtype=torch.int32, pin_memory=torch.cuda.is_initialized())  # sent without a copy
    grammars: list[tuple[int, Grammar]] = []
    for row, member in enumerate(samplers):
        sequence, grammar = member.sequence, member.sequence.request.grammar
        if member.end < len(sequence.tokens):
            _allow_only(mask[row], sequence.tokens[member.end])
        elif grammar is not None and sequence.finish_reason is None:
            grammars.append((row, grammar))
    fill_masks(mask, grammars)
    return mask


def take_sample(member: Scheduled, token: int, eos: frozenset[int]) -> None:
    """Append a sampled token and what is forced after it; set why the sequence ends, if it does."""
    sequence = member.sequence
    if token == NO_TOKEN:
        sequence.broken = True
        sequence.finish(FinishReason.ABORTED, _no_finite_score(member))
    if member.end < len(sequence.tokens):
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
    """Append what is forced next; a grammar's failure ends this sequence alone."""
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
    """Move the grammar past a sampled token and what it forces after it."""
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


def _no_finite_score(member: Scheduled) -> NoFiniteScoreError:
    place = member.end - member.sequence.prompt_tokens + 1
    return NoFiniteScoreError(
        f"output token {place} has no finite score: a weight is broken, a number overflows in the model's type, or "
        "nothing is allowed"
    )
