"""How a sequence gains tokens: sampled ones, and those that its grammar forces.

Forced tokens are appended as they are found and computed like a prompt's, without sampling (llguidance calls them
fast-forward tokens). Asking a grammar for them costs more than all other work on a token, so it is asked only after
tokens that may end a value, and when its mask leaves no choice. Samples that are unread at that moment equal the first
forced tokens, since masks allow nothing else; reading them later changes nothing.

A sample of NO_TOKEN means broken logits, and ends its sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from thothy_ai.engine.api import FinishReason, SamplingParams, TokenLogprob
from thothy_ai.engine.api.errors import EngineError, GrammarError, InvalidRequestError, NoFiniteScoreError
from thothy_ai.engine.api.sampling import MAX_END_TOKENS
from thothy_ai.engine.api.step import Step, StepMasks
from thothy_ai.engine.grammar.batch import Filling, advance_all, extend_field, start_filling
from thothy_ai.engine.grammar.compiler import Grammar
from thothy_ai.engine.grammar.json_schema import JsonGrammar
from thothy_ai.engine.grammar.memory import MaskMemory, RowMasks
from thothy_ai.engine.scheduling.drafting.drafts import DraftedTokens, DraftSpan
from thothy_ai.engine.scheduling.kv_budget import KVBudget
from thothy_ai.engine.scheduling.sequence import Sequence
from thothy_ai.kernels.sampling import NO_TOKEN

NO_DRAFTS: Mapping[Sequence, DraftedTokens] = MappingProxyType({})


class PendingMasks(NamedTuple):
    """The masks of a step's sampling members, while they are being computed."""

    masks: RowMasks
    members: Seq[tuple[Sequence, int]]
    known: Seq[int]  # rows whose next token is known
    filling: Filling
    drafts: Mapping[Sequence, DraftedTokens]

    def wait(self) -> StepMasks:
        """Wait for all masks and return them. Members also get the tokens that are forced."""
        lacking = self.filling.wait()
        for row in lacking:
            sequence, position = self.members[row]
            draft = self.drafts.get(sequence)
            if draft is not None and position > draft.start:
                draft.forcing.add(position)
            else:
                take_forced(sequence)
        for row in (*lacking, *self.known):
            sequence, position = self.members[row]
            if position < len(sequence.tokens):
                self.masks.allow_only(row, sequence.tokens[position])
        return self.masks.of_step()


def start_masks(
    members: Seq[tuple[Sequence, int]], memory: MaskMemory, drafts: Mapping[Sequence, DraftedTokens] = NO_DRAFTS
) -> PendingMasks:
    """Begin to compute the masks of sampling members, some of which have a grammar.

    `members` [R] are sequences with the positions of the tokens to be sampled. If the token at a position is already
    known because it was forced, its mask allows only that token. After a draft, the draft's grammar applies. No member
    may advance until the masks are complete.
    """
    masks = RowMasks(len(members), memory)
    grammars: list[tuple[Grammar, int]] = []
    known: list[int] = []
    drafted = {sequence: _follow(sequence, draft) for sequence, draft in drafts.items()}
    for row, (sequence, position) in enumerate(members):
        length = len(sequence.tokens)
        if position < length:
            known.append(row)
        elif sequence.finish_reason is None:
            after: Grammar | int | None = sequence.grammar if position == length else drafted[sequence].get(position)
            if isinstance(after, int):
                masks.allow_only(row, after)
            elif after is not None:
                grammars.append((after, row))
    return PendingMasks(masks, members, known, start_filling(masks, grammars), drafts)


def _follow(sequence: Sequence, draft: DraftedTokens) -> dict[int, Grammar | int]:
    """Divide a draft into spans by the sequence's grammar. The spans end before a token that the grammar refuses,
    where it forces another one, and where `close` must see a mask. Returns, for each position in the spans and the one
    after them, the grammar of the draw there, or its token if that is forced.
    """
    grammar, position, found = sequence.grammar, draft.start, dict[int, Grammar | int]()
    if not isinstance(grammar, JsonGrammar):
        return found
    spans, left = list[DraftSpan](), draft.tokens[: grammar.allows(draft.tokens)]
    try:
        while left and (after := grammar.after(left[0])) is not None:
            grammar, forced = after
            span = [left[0], *forced]
            if left[: len(span)] != span or not sequence.end_tokens.isdisjoint(forced):
                break
            found |= zip(range(position + 1, position + len(span)), forced, strict=True)
            left, position = left[len(span) :], position + len(span)
            found[position] = grammar
            spans.append(DraftSpan(span, grammar))
    except GrammarError:
        pass  # the draft ends where the grammar does
    draft.spans = spans
    return found


def end_tokens(sampling: SamplingParams, eos: frozenset[int], vocab_size: int) -> frozenset[int]:
    """The tokens that end a request's text; InvalidRequestError for a stop token outside the vocabulary."""
    biased = [bias.token for bias in sampling.logit_bias]
    for name, tokens in (("stop_token_ids", sampling.stop_token_ids), ("logit_bias", biased)):
        if max(tokens, default=0) >= vocab_size:
            raise InvalidRequestError(f"{name}: a token is outside the vocabulary of {vocab_size}", name)
    if (sampling.logprobs or 0) > vocab_size:
        raise InvalidRequestError(f"logprobs={sampling.logprobs} of a vocabulary of {vocab_size}", "logprobs")
    ends = (frozenset() if sampling.ignore_eos else eos).union(sampling.stop_token_ids)
    if sampling.min_tokens and len(ends) > MAX_END_TOKENS:
        says = f"min_tokens: {len(ends)} tokens end the text; {MAX_END_TOKENS} are possible"
        raise InvalidRequestError(says, "min_tokens")
    return ends


def take_samples(samples: Iterable[tuple[Sequence, int, int]]) -> None:
    """Append sampled tokens, and forced tokens where some are likely to follow; set why a sequence ends, if it does.

    `samples` has each sequence at most once, with the position and the token that was sampled for it.
    """
    constrained: list[tuple[Sequence, Grammar, int]] = []
    for sequence, position, token in samples:
        if not _take(sequence, position, token):
            continue
        grammar = sequence.grammar
        if grammar is not None and not extend_field(grammar, token):
            constrained.append((sequence, grammar, token))
        elif sequence.output_tokens >= sequence.max_tokens:
            sequence.finish(FinishReason.LENGTH)
    errors = advance_all([(grammar, token) for _, grammar, token in constrained])
    for (sequence, grammar, token), error in zip(constrained, errors, strict=True):
        if error is not None:
            sequence.finish(FinishReason.ABORTED, error)
        elif grammar.finished:
            sequence.finish(FinishReason.STOP)
        elif grammar.may_force_after(token):
            take_forced(sequence)
        if sequence.output_tokens >= sequence.max_tokens:
            sequence.finish(FinishReason.LENGTH)


def take_drafts(
    draws: Iterable[tuple[Sequence, int, int]], drafts: Mapping[Sequence, DraftedTokens]
) -> Iterator[tuple[Sequence, int, int]]:
    """Append the drafts that agree with their sequences' draws; yields each sequence's first draw after them.

    `draws` are sequences with a position and the token drawn for it, ordered by position within each sequence.
    """
    drawn: dict[Sequence, list[int]] = {}
    for sequence, position, token in draws:
        if sequence in drafts:
            drawn.setdefault(sequence, []).append(token)
        else:
            yield sequence, position, token
    for sequence, tokens in drawn.items():
        draft, position = drafts[sequence], drafts[sequence].start
        if len(sequence.tokens) == position and sequence.finish_reason is None:
            spans = [DraftSpan((token,), None) for token in draft.tokens] if draft.spans is None else draft.spans
            for span in spans:
                if tokens[position - draft.start] != span.tokens[0] or position in draft.forcing:
                    break
                sequence.tokens += span.tokens
                sequence.grammar = span.grammar
                position += len(span.tokens)
            draft.taken = position - draft.start
            sequence.computed = position
            sequence.tokens_sent = position + 1
            if position in draft.forcing:
                sequence.tokens_sent = position  # the draw may be another token
                take_forced(sequence)
        yield sequence, position, tokens[position - draft.start]


def take_logprobs(members: Seq[tuple[Sequence, int]], step: Step, logprobs: Mapping[int, TokenLogprob]) -> None:
    """Keep the log-probabilities of the tokens that a step's members drew, given by row, until they are reported.

    A token that was forced meanwhile was not drawn, and gets none. A member can have lost its row since the step.
    """
    for (sequence, position), row in zip(members, step.rows[step.samples].tolist(), strict=True):
        if (drawn := logprobs.get(row)) is not None and position >= len(sequence.tokens):
            sequence.logprobs[position] = drawn


def take_importance(weighed: Iterable[tuple[KVBudget, range]], importance: Seq[float]) -> None:
    """Let budgets learn the importance of the blocks that a step weighed."""
    left = iter(importance)
    for budget, numbers in weighed:
        budget.learn(numbers.start, list(islice(left, len(numbers))))


def _take(sequence: Sequence, position: int, token: int) -> bool:
    """Append a token unless it is known, ends its sequence or comes after the end; returns whether it was appended."""
    if token == NO_TOKEN:
        sequence.broken = True
        error = NoFiniteScoreError(
            f"output token {position - sequence.prompt_tokens + 1} has no finite score: a weight is broken, a number "
            "overflows in the model's type, or nothing is allowed"
        )
        sequence.finish(FinishReason.ABORTED, error)
    if position < len(sequence.tokens):
        return False
    sequence.pending -= 1
    if sequence.finish_reason is not None:
        return False
    if token in sequence.end_tokens:
        sequence.finish(FinishReason.STOP)
        return False
    sequence.tokens.append(token)
    return True


def take_forced(sequence: Sequence) -> None:
    """Append the tokens that the grammar forces next; if the grammar fails, only this sequence ends."""
    grammar = sequence.grammar
    if grammar is None or sequence.finish_reason is not None:
        return
    try:
        forced: Seq[int] = grammar.forced()
        if not forced:
            return
        forced = _until_end(sequence, forced[: sequence.max_tokens - sequence.output_tokens])
        for token in forced:
            grammar.advance(token)
    except EngineError as error:
        sequence.finish(FinishReason.ABORTED, error)
        return
    sequence.tokens += forced
    sequence.pending = max(0, sequence.pending - len(forced))
    if grammar.finished:
        sequence.finish(FinishReason.STOP)
    if sequence.output_tokens >= sequence.max_tokens:
        sequence.finish(FinishReason.LENGTH)


def _until_end(sequence: Sequence, forced: Seq[int]) -> Seq[int]:
    """The forced tokens before the first one that ends the sequence; none ends it before its `min_tokens`."""
    if sequence.end_tokens.isdisjoint(forced):
        return forced
    first = max(0, sequence.request.sampling.min_tokens - sequence.output_tokens)
    for place in range(first, len(forced)):
        if forced[place] in sequence.end_tokens:
            sequence.finish(FinishReason.STOP)
            return forced[:place]
    return forced
