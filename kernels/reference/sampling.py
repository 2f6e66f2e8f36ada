"""Choosing tokens from logits: the plain-torch reference that faster kernels are held against.

A draw is a Gumbel-max over what survives the filters, with noise that depends on (seed, position, token) only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from thothy_ai.kernels.reference.philox import token_words, vocabulary_words
from thothy_ai.kernels.sampling import FILTERED, NO_TOKEN, NUCLEUS, UNFILTERED, Column, SamplingBatch, Work

_BELOW_ONE = 1.0 - 2.0**-24
_FIRST_WIDTHS = (256, 4096)  # what the filters leave is mostly among that many tokens
_ROWS_AT_ONCE = 32  # draws keep many temporaries of a whole vocabulary, so not all rows at once


class TokenChooser:
    """Chooses tokens for steps of any size, on any device."""

    def __init__(self, max_rows: int, device: torch.device) -> None:
        del max_rows, device  # for which Triton's allocates scratch memory

    def __call__(self, step: SamplingBatch, work: Work) -> Tensor:
        """One token for each member [R] int64: the first of equal scores. It depends on the member alone.

        NO_TOKEN where a score that is allowed is NaN or infinite, or none is allowed.
        """
        return choose(step, work)


def choose(step: SamplingBatch, work: Work) -> Tensor:
    """What a `TokenChooser` does; it keeps nothing between steps."""
    columns = step.table[step.rows]
    logits = step.logits.to(torch.float32)
    if work.penalized:
        penalty = columns[:, Column.PENALTY].to(torch.float32)
        members = (penalty != 1).nonzero().flatten()
        if len(members):
            known = step.positions[members]
            token_ids = step.token_ids[step.rows[members], : int(known.max())]
            changed = penalize_repetition(logits[members], token_ids, known, penalty[members])
            logits = logits.index_copy(0, members, changed)
    if step.bitmask is not None:
        logits = apply_bitmask(logits, step.bitmask)
    highest, chosen = logits.max(dim=-1)  # NaN if any is
    ways = (
        (work.unfiltered, UNFILTERED, _draw_unfiltered),
        (work.nucleus, NUCLEUS, _draw_filtered),
        (work.filtered, FILTERED, _draw_filtered),
    )
    for wanted, kind, draw in ways:
        if wanted and len(members := (columns[:, Column.KIND] == kind).nonzero().flatten()):
            for few in members.split(_ROWS_AT_ONCE):  # of no members, it would be one part without any
                chosen[few] = draw(logits[few], columns[few], step.positions[few])
    return chosen.where(highest.isfinite(), NO_TOKEN)


def _draw_unfiltered(logits: Tensor, columns: Tensor, positions: Tensor) -> Tensor:
    temperature = columns[:, Column.TEMPERATURE].to(torch.float32)
    return sample_unfiltered(logits, temperature, _seeds(columns), positions)


def _draw_filtered(logits: Tensor, columns: Tensor, positions: Tensor) -> Tensor:
    """Look at the likeliest tokens first: sorting a whole vocabulary costs more than the rest."""
    temperature, top_p, min_p = columns[:, : Column.PENALTY].to(torch.float32).unbind(1)
    top_k, seeds = columns[:, Column.TOP_K].to(torch.int64), _seeds(columns)
    tokens = torch.empty_like(positions)
    open_ = torch.arange(len(tokens), device=tokens.device)
    vocab_size = logits.shape[1]
    for width in (*(few for few in _FIRST_WIDTHS if few < vocab_size), vocab_size):
        tokens[open_], complete = sample_filtered(
            logits[open_],
            temperature[open_],
            top_k[open_],
            top_p[open_],
            min_p[open_],
            seeds[open_],
            positions[open_],
            width,
        )
        open_ = open_[~complete]
        if not len(open_):
            break
    return tokens


def _seeds(columns: Tensor) -> Tensor:
    return columns[:, Column.SEED_HIGH].to(torch.int64) << 32 | columns[:, Column.SEED_LOW].to(torch.int64)


def penalize_repetition(logits: Tensor, token_ids: Tensor, known: Tensor, penalty: Tensor) -> Tensor:
    """Divide positive logits of tokens seen before by the penalty and multiply negative ones (Keskar et al., 2019).

    Args: logits [R, V] float32, token_ids [R, L], known [R] how many of them count (at least 1), penalty [R].
    """
    real = torch.arange(token_ids.shape[1], device=logits.device) < known[:, None]
    seen = torch.where(real, token_ids, token_ids[:, :1]).to(torch.int64)  # the first token counts already
    scores = logits.gather(1, seen)
    factor = penalty[:, None]
    return logits.scatter(1, seen, torch.where(scores < 0, scores * factor, scores / factor))


def apply_bitmask(logits: Tensor, bitmask: Tensor) -> Tensor:
    """-inf where the token's bit is 0. logits [R, V]; bitmask [R, ceil(V / 32)] int32, lowest bit first."""
    shifts = torch.arange(32, dtype=torch.int32, device=logits.device)
    allowed = (bitmask[:, :, None] >> shifts & 1).flatten(1)[:, : logits.shape[1]]
    return logits.masked_fill(allowed == 0, -torch.inf)


def gumbel(words: Tensor) -> Tensor:
    """Standard Gumbel noise, float32, from random words (int64 in [0, 2**32)).

    -log(E) of an exponential E = -log1p(-u): a large value comes from a small u, where floats are densest.
    """
    u = (words.to(torch.float32) * 2.0**-32 + 2.0**-33).clamp(max=_BELOW_ONE)
    return -torch.log(-torch.log1p(-u))


def sample_unfiltered(logits: Tensor, temperature: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """Draw from softmax(logits / temperature). logits [R, V], the rest [R]; returns [R] int64."""
    noise = gumbel(vocabulary_words(seeds, positions, logits.shape[1]))
    return (logits / temperature[:, None] + noise).argmax(dim=-1)


def sample_filtered(
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    seeds: Tensor,
    positions: Tensor,
    width: int,
) -> tuple[Tensor, Tensor]:
    """Draw from what top-k, top-p and min-p leave of the `width` likeliest tokens.

    Args: logits [R, V]; temperature, top_p, min_p [R] float32; top_k [R] int64, V for none; seeds, positions [R].
    Returns tokens [R] int64 and whether all survivors were among those `width` [R] bool; only then is the draw the
    one that the whole vocabulary would give, and then it is exactly that.
    """
    scaled = logits / temperature[:, None]
    scores, tokens = scaled.topk(width, dim=-1)  # [R, width], likeliest first
    kept = survivors(scores, scaled.logsumexp(dim=-1), top_k, top_p, min_p)
    noise = gumbel(token_words(seeds, positions, tokens))
    choice = torch.where(kept, scores + noise, -torch.inf).argmax(dim=-1, keepdim=True)
    # Top-p takes a share of a mass that these tokens do not tell where top-k leaves some beyond them, but not all.
    last, beyond, vocab_size = _last(scores, top_k), scores[:, -1:], logits.shape[1]  # none beyond scores higher
    ended = (top_k <= width) & (beyond < last).squeeze(1)
    known = ended | (beyond.squeeze(1) == -torch.inf) | (top_k >= vocab_size) | (top_p >= 1)
    return tokens.gather(1, choice).squeeze(1), ~kept[:, -1] & known | (width == vocab_size)


def survivors(scores: Tensor, total: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """Which of the likeliest tokens pass top-k, then top-p, then min-p; the likeliest always does. [R, W] bool.

    Args: scores [R, W] in falling order; total [R], the log-sum-exp of all that top-k leaves where that is more than
    W tokens: of the whole vocabulary for a row without top-k.
    Equal scores are kept or dropped together, so that a set never depends on how a sort breaks ties.
    """
    width = scores.shape[1]
    in_top_k = (scores >= _last(scores, top_k)) | (top_k[:, None] > width)
    candidates = scores.masked_fill(~in_top_k, -torch.inf)
    limited = torch.where(top_k <= width, candidates.logsumexp(dim=-1), total)
    probabilities = (candidates - limited[:, None]).exp()
    above = probabilities.cumsum(dim=-1) - probabilities  # mass of the likelier ones
    count = (above < top_p[:, None]).sum(dim=-1, keepdim=True).clamp(min=1)  # they are a prefix of the row
    in_top_p = candidates >= candidates.gather(1, count - 1)
    in_min_p = probabilities >= min_p[:, None] * probabilities[:, :1]
    kept = in_top_k & (in_top_p | (top_p[:, None] >= 1)) & in_min_p & (scores > -torch.inf)
    kept[:, 0] = True
    return kept


def _last(scores: Tensor, top_k: Tensor) -> Tensor:
    """The lowest score that top-k leaves of each row [R, 1], or that the row has."""
    return scores.gather(1, (top_k.clamp(max=scores.shape[1]) - 1)[:, None])
