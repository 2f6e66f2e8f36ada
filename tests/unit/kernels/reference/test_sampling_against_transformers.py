"""Choices of the reference are those that transformers' own processors leave, over random parameters and their edges.

A choice is the highest of the processed scores plus noise, and the noise is the reference's: whatever the two would
filter differently shows as another token.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from thothy_ai.engine.api import SamplingParams
from thothy_ai.kernels.reference import sampling
from thothy_ai.kernels.reference.philox import vocabulary_words
from thothy_ai.kernels.sampling import Column, SamplingBatch, Work, parameters

ROWS = 48
KNOWN = 9  # tokens that each row has
VOCABULARIES = [3, 200, 256, 257, 1000, 4500]  # around the widths that the reference looks at first


class _Masking(LogitsProcessor):
    """Stands where transformers' own constraints on tokens stand: after the penalty, before the temperature."""

    def __init__(self, allowed: Tensor) -> None:
        self._allowed = allowed

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores.masked_fill(~self._allowed, -math.inf)


def processors(params: SamplingParams, allowed: Tensor | None) -> LogitsProcessorList:
    """What `transformers.generate` would build, in its order."""
    listed: list[LogitsProcessor] = []
    if params.repetition_penalty != 1:
        listed.append(RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    if allowed is not None:
        listed.append(_Masking(allowed))
    listed.append(TemperatureLogitsWarper(params.temperature))
    if params.top_k:
        listed.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        listed.append(TopPLogitsWarper(params.top_p))
    if params.min_p:
        listed.append(MinPLogitsWarper(params.min_p))
    return LogitsProcessorList(listed)


def theirs(logits: Tensor, tokens: Tensor, params: SamplingParams, seeds: Tensor, allowed: Tensor | None) -> list[int]:
    """The highest of transformers' processed scores plus the reference's noise."""
    processed = processors(params, allowed)(tokens, logits)
    positions = torch.full((len(logits),), KNOWN)
    noise = sampling.gumbel(vocabulary_words(seeds, positions, logits.shape[1]))
    return (processed + noise).argmax(dim=-1).tolist()


def ours(logits: Tensor, tokens: Tensor, params: SamplingParams, seeds: Tensor, allowed: Tensor | None) -> list[int]:
    options = {name: getattr(params, name) for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")}
    made = [parameters(**options, seed=int(seed), vocab_size=logits.shape[1]) for seed in seeds]
    rows, positions = torch.arange(len(logits)), torch.full((len(logits),), KNOWN)
    bitmask = None if allowed is None else as_bits(allowed)
    step = SamplingBatch(
        logits, rows, positions, tokens.to(torch.int32), bitmask, torch.tensor(made, dtype=torch.float64)
    )
    work = Work.of([int(row[Column.KIND]) for row in made], penalized=True)
    return sampling.choose(step, work).tolist()


def as_bits(allowed: Tensor) -> Tensor:
    rows, vocab = allowed.shape
    padded = torch.zeros(rows, -(-vocab // 32) * 32, dtype=torch.int64)
    padded[:, :vocab] = allowed
    words = (padded.view(rows, -1, 32) << torch.arange(32)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def random_case(seed: int, vocab: int) -> tuple[Tensor, Tensor, SamplingParams, Tensor, Tensor | None]:
    generator, pick = torch.Generator().manual_seed(seed), random.Random(seed)
    spread = pick.choice([0.01, 0.3, 1.0, 3.0, 10.0])  # from nearly flat to peaked
    logits = torch.randn(ROWS, vocab, generator=generator) * spread
    tokens = torch.randint(vocab, (ROWS, KNOWN), generator=generator)
    edges = [1, 2, 255, 256, 257, 300, 999, 4095, 4096, 4097, vocab - 1, vocab, vocab + 1]
    params = SamplingParams(
        temperature=pick.choice([1e-3, 0.3, 1.0, 1.7, 100.0]),
        top_k=pick.choice([0, pick.randint(1, vocab), pick.choice([edge for edge in edges if edge > 0])]),
        top_p=pick.choice([1.0, 1e-6, pick.random(), 0.3, 0.9, 0.999]),
        min_p=pick.choice([0.0, 0.0, 1e-9, 0.05, pick.random()]),
        repetition_penalty=pick.choice([1.0, 1.02, 0.5, 3.0]),
    )
    allowed = torch.rand(ROWS, vocab, generator=generator) < pick.choice([0.02, 0.5, 0.98])
    allowed[:, pick.randrange(vocab)] = True
    seeds = torch.randint(2**62, (ROWS,), generator=generator)
    return logits, tokens, params, seeds, allowed if pick.random() < 0.4 else None


@pytest.mark.parametrize("vocab", VOCABULARIES)
def test_choices_are_those_that_transformers_leaves(vocab: int) -> None:
    for seed in range(60 if vocab <= 1000 else 30):
        case = random_case(seed, vocab)
        assert ours(*case) == theirs(*case), (seed, case[2])


@pytest.mark.parametrize("top_k", [1, 255, 256, 257, 400, 999, 1000, 5000])
@pytest.mark.parametrize("top_p", [0.15, 0.3, 0.9, 0.999])
def test_the_nucleus_is_a_share_of_what_top_k_leaves(top_k: int, top_p: float) -> None:
    """Nearly flat scores: whatever is the share of another mass keeps other tokens."""
    logits = torch.linspace(2, 0, 1000).repeat(1000, 1)
    tokens, seeds = torch.zeros(1000, KNOWN, dtype=torch.int64), torch.arange(1000)
    params = SamplingParams(temperature=1.0, top_k=top_k, top_p=top_p)
    assert ours(logits, tokens, params, seeds, None) == theirs(logits, tokens, params, seeds, None)


def test_as_many_survive_as_in_transformers() -> None:
    scores, total = torch.linspace(2, 0, 1000)[None], torch.linspace(2, 0, 1000).logsumexp(0)[None]
    kept = sampling.survivors(scores[:, :256], total, torch.tensor([256]), torch.tensor([0.15]), torch.zeros(1))
    assert int(kept.sum()) == 31


@pytest.mark.parametrize("top_k", [100, 300])
def test_equal_scores_beyond_the_first_look_count(top_k: int) -> None:
    """Top-k keeps every token that equals its last: their mass counts, and the first look sees few of them."""
    row = torch.cat((torch.linspace(1.0, 0.9, 50), torch.full((950,), 0.5)))[
        torch.randperm(1000, generator=torch.Generator().manual_seed(1))
    ]
    logits, seeds = row.repeat(300, 1), torch.arange(300)
    tokens = torch.zeros(300, KNOWN, dtype=torch.int64)
    params = SamplingParams(temperature=1.0, top_k=top_k, top_p=0.05)
    alike = replace(params, top_k=0)  # the same tokens, the same mass
    assert ours(logits, tokens, params, seeds, None) == ours(logits, tokens, alike, seeds, None)
    assert ours(logits, tokens, params, seeds, None) == theirs(logits, tokens, params, seeds, None)
