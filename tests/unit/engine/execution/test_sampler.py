"""The sampler: survivors as transformers has them, draws that follow the distribution and depend on nothing else."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from thothy_ai.engine.api import LogitBias, SamplingParams
from thothy_ai.engine.api.step import RowBiases, Start, StartedRows
from thothy_ai.engine.execution.sampler import Sampler
from thothy_ai.kernels.reference import sampling
from thothy_ai.kernels.sampling import GREEDY, NUCLEUS, Work

VOCAB = 1000
CPU = torch.device("cpu")
FILTERS = [
    SamplingParams(temperature=0.7, top_k=5),
    SamplingParams(temperature=1.3, top_p=0.8),
    SamplingParams(temperature=0.9, min_p=0.05),
    SamplingParams(temperature=0.8, top_k=50, top_p=0.9, min_p=0.02),
    SamplingParams(temperature=1.0, top_k=1),
    SamplingParams(temperature=2.0, top_p=0.01),
    SamplingParams(temperature=1.0, top_k=5000, top_p=0.97),
]


def random_logits(rows: int, seed: int = 0, vocab: int = VOCAB) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3


def draw(
    logits: Tensor,
    params: list[SamplingParams],
    seeds: list[int],
    *,
    rows: list[int] | None = None,
    positions: list[int] | None = None,
    token_ids: Tensor | None = None,
    bitmask: Tensor | None = None,
) -> list[int]:
    """One step of a fresh sampler."""
    count = len(logits)
    rows = rows or list(range(count))
    sampler = Sampler(max(rows) + 1, logits.shape[1], CPU)
    sampler.start_rows(StartedRows.of(map(Start, rows, params, seeds)))
    tokens = torch.zeros(max(rows) + 1, 8, dtype=torch.int32) if token_ids is None else token_ids
    at = torch.tensor(positions or [3] * count)
    chosen = sampler.sample(logits, torch.tensor(rows), at, tokens, bitmask, members=rows)
    assert chosen.dtype == torch.int64
    return chosen.tolist()


def warpers(params: SamplingParams) -> LogitsProcessorList:
    """What `transformers.generate` would build, in its order."""
    listed = [TemperatureLogitsWarper(params.temperature)]
    if params.top_k:
        listed.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        listed.append(TopPLogitsWarper(params.top_p))
    if params.min_p:
        listed.append(MinPLogitsWarper(params.min_p))
    return LogitsProcessorList(listed)


@pytest.mark.parametrize("params", FILTERS)
@pytest.mark.parametrize("width", [64, VOCAB])
def test_survivors_are_those_of_transformers(params: SamplingParams, width: int) -> None:
    logits = random_logits(20)
    expected = warpers(params)(torch.zeros(20, 1, dtype=torch.int64), logits) > -math.inf
    scaled = logits / params.temperature
    scores, tokens = scaled.topk(width)
    top_k = torch.full((20,), min(params.top_k or VOCAB, VOCAB))
    top_p, min_p = torch.full((20,), params.top_p), torch.full((20,), params.min_p)
    kept = sampling.survivors(scores, scaled.logsumexp(-1), top_k, top_p, min_p)
    ours = torch.zeros_like(expected).scatter(1, tokens, kept)
    whole = ~kept[:, -1] if width < VOCAB else torch.ones(20, dtype=torch.bool)
    assert torch.equal(ours[whole], expected[whole])
    assert (expected[~whole].sum(-1) >= width).all(), "a row may be called incomplete only if it is"


@pytest.mark.parametrize("params", FILTERS)
def test_a_narrow_look_draws_what_the_whole_vocabulary_would(params: SamplingParams) -> None:
    logits = random_logits(64, seed=1)
    assert VOCAB > 256
    columns = (
        torch.full((64,), params.temperature),
        torch.full((64,), min(params.top_k or VOCAB, VOCAB)),
        torch.full((64,), params.top_p),
        torch.full((64,), params.min_p),
        torch.arange(64),
        torch.full((64,), 3),
    )
    whole, complete = sampling.sample_filtered(logits, *columns, VOCAB)
    assert complete.all()
    assert draw(logits, [params] * 64, list(range(64))) == whole.tolist()


def test_equal_scores_live_or_die_together() -> None:
    scores = torch.tensor([[2.0, 1.0, 1.0, 1.0, 0.0]])
    total, everything = scores.logsumexp(-1), torch.tensor([5])
    by_k = sampling.survivors(scores, total, torch.tensor([2]), torch.ones(1), torch.zeros(1))
    by_p = sampling.survivors(scores, total, everything, torch.tensor([0.55]), torch.zeros(1))
    assert by_k.tolist() == by_p.tolist() == [[True, True, True, True, False]]


def test_repetition_penalty_is_that_of_transformers() -> None:
    logits = random_logits(3, seed=2)
    token_ids = torch.tensor([[5, 9, 9, 700, 1, 2], [0, 0, 3, 4, 8, 8], [999, 1, 2, 3, 4, 5]])
    known = torch.tensor([4, 6, 1])
    penalty = torch.tensor([1.3, 0.7, 5.0])
    ours = sampling.penalize_repetition(logits, token_ids, known, penalty)
    for row in range(3):
        processor = RepetitionPenaltyLogitsProcessor(float(penalty[row]))
        expected = processor(token_ids[row : row + 1, : known[row]], logits[row : row + 1].clone())
        torch.testing.assert_close(ours[row : row + 1], expected)


def test_penalty_counts_what_a_row_holds_and_touches_no_other_row() -> None:
    logits = torch.zeros(2, 10)
    logits[:, 4], logits[:, 6] = 2.0, 1.5
    token_ids = torch.full((4, 8), 4, dtype=torch.int32)
    token_ids[:, 2:] = 6
    penalized = SamplingParams(repetition_penalty=2.0)
    chosen = draw(logits, [penalized, SamplingParams()], [0, 0], rows=[3, 1], token_ids=token_ids, positions=[2, 2])
    assert chosen == [6, 4]
    assert logits[0, 4] == 2.0, "the step's logits are not changed"


def test_bitmask_layout_and_tail() -> None:
    vocab = 70
    allowed = {0, 31, 32, 63, 69}
    bits = [sum(1 << bit for bit in range(32) if word * 32 + bit in allowed) for word in range(3)]
    bitmask = torch.tensor([bits], dtype=torch.int64).to(torch.int32)
    masked = sampling.apply_bitmask(torch.zeros(1, vocab), bitmask)
    assert set((masked[0] > -math.inf).nonzero().flatten().tolist()) == allowed


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=1.0), FILTERS[3], FILTERS[1]])
def test_a_mask_of_one_token_leaves_that_token(params: SamplingParams) -> None:
    logits = random_logits(8)
    bitmask = torch.zeros(8, -(-VOCAB // 32), dtype=torch.int32)
    for row in range(8):
        bitmask[row, row] = 1 << row
    assert draw(logits, [params] * 8, list(range(8)), bitmask=bitmask) == [33 * row for row in range(8)]


def test_penalty_comes_before_mask_and_mask_before_temperature() -> None:
    """A token that is masked takes no part in the nucleus: the others' masses are renormalized."""
    logits = torch.tensor([[5.0, 1.0, 0.9, -9.0]])
    bitmask = torch.tensor([[0b1110]], dtype=torch.int32)
    params = SamplingParams(temperature=1.0, top_p=0.5)
    assert {draw(logits, [params], [seed], bitmask=bitmask)[0] for seed in range(30)} == {1}


def test_greedy_takes_the_first_of_equals_and_ignores_seeds() -> None:
    logits = torch.zeros(2, 50)
    logits[:, [7, 30]] = 4.0
    assert draw(logits, [SamplingParams(), SamplingParams(temperature=1e-9, top_k=3)], [1, 2]) == [7, 7]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=1.7, top_k=8),
        SamplingParams(temperature=1.0, top_p=0.9),
    ],
)
@pytest.mark.parametrize("along", ["seeds", "positions"])
def test_draws_follow_the_distribution(params: SamplingParams, along: str) -> None:
    count, vocab = 20_000, 16
    logits = random_logits(1, seed=4, vocab=vocab) / 2
    expected = warpers(params)(torch.zeros(1, 1, dtype=torch.int64), logits).softmax(-1)[0] * count
    steps = list(range(1, count + 1))
    chosen = draw(
        logits.expand(count, vocab),
        [params] * count,
        steps if along == "seeds" else [11] * count,
        positions=[5] * count if along == "seeds" else steps,
    )
    observed = torch.bincount(torch.tensor(chosen), minlength=vocab).to(torch.float32)
    assert observed[expected == 0].sum() == 0
    alive = expected > 0
    chi_square = float(((observed - expected)[alive] ** 2 / expected[alive]).sum())
    freedom = int(alive.sum()) - 1
    assert chi_square < freedom + 5 * math.sqrt(2 * freedom), "five standard deviations; seeded, so never by chance"


def test_a_draw_does_not_depend_on_batch_mates_or_on_its_row() -> None:
    logits = random_logits(6, seed=5)
    params = [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.8, top_p=0.95),
        SamplingParams(),
        SamplingParams(temperature=1.2, top_k=20, repetition_penalty=1.2),
        SamplingParams(temperature=5.0, min_p=0.001),
        SamplingParams(temperature=0.5),
    ]
    seeds = [2**62 + 1, 5, 5, 0, 99, 2**33]
    alone = [draw(logits[i : i + 1], [params[i]], [seeds[i]]) for i in range(6)]
    together = draw(logits, params, seeds)
    shuffled = draw(logits.flip(0), params[::-1], seeds[::-1], rows=[9, 4, 0, 7, 2, 5])
    assert [[token] for token in together] == alone
    assert shuffled[::-1] == together


def asked(
    logits: Tensor, params: list[SamplingParams], token_ids: Tensor, *, positions: list[int], prompt: int = 2
) -> list[int]:
    """One step of a fresh sampler, in which each row's seed is its number; token 3 ends texts."""
    rows = list(range(len(logits)))
    sampler = Sampler(len(rows), logits.shape[1], CPU)
    starts = [Start(row, each, row, prompt, (3,)) for row, each in zip(rows, params, strict=True)]
    sampler.start_rows(StartedRows.of(starts), RowBiases.of(starts))
    at = torch.tensor(positions)
    ends = at.numpy().astype("int32")
    return sampler.sample(logits, torch.tensor(rows), at, token_ids, None, rows, ends).tolist()


@pytest.mark.parametrize("filters", [{}, {"top_p": 0.9}, {"top_k": 8}])
def test_draws_follow_the_changed_distribution(filters: dict[str, float]) -> None:
    """Of rows whose outputs are the same, by penalties, a bias and a ban; more rows than change at once."""
    count, vocab = 20_000, 16
    logits = random_logits(1, seed=4, vocab=vocab) / 2
    output = [5, 5, 9, 1]
    params = SamplingParams(
        temperature=1.0,
        frequency_penalty=0.7,
        presence_penalty=0.4,
        logit_bias=(LogitBias(7, 1.5),),
        min_tokens=5,
        **filters,
    )
    changed = logits.clone()
    changed[0, 7] += 1.5
    changed[0, [5, 9, 1]] -= torch.tensor([1.8, 1.1, 1.1])
    changed[0, 3] = -math.inf
    expected = warpers(params)(torch.zeros(1, 1, dtype=torch.int64), changed).softmax(-1)[0] * count
    token_ids = torch.tensor([[7, 7, *output, 0, 0]], dtype=torch.int32).expand(count, 8).contiguous()
    chosen = asked(logits.expand(count, vocab), [params] * count, token_ids, positions=[6] * count)
    observed = torch.bincount(torch.tensor(chosen), minlength=vocab).to(torch.float32)
    assert observed[expected == 0].sum() == 0
    alive = expected > 0
    chi_square = float(((observed - expected)[alive] ** 2 / expected[alive]).sum())
    freedom = int(alive.sum()) - 1
    assert chi_square < freedom + 5 * math.sqrt(2 * freedom), "five standard deviations; seeded, so never by chance"


def test_rows_that_ask_change_no_others_and_a_minimum_passes() -> None:
    logits = torch.zeros(4, 8)
    logits[:, 3], logits[:, 4] = 2.0, 1.0
    token_ids = torch.full((4, 8), 3, dtype=torch.int32)
    minimum = SamplingParams(min_tokens=3)
    params = [SamplingParams(), minimum, minimum, SamplingParams(frequency_penalty=0.3)]
    assert asked(logits, params, token_ids, positions=[4, 4, 5, 6]) == [3, 4, 3, 4]


def test_a_row_that_changes_hands_forgets_what_was_asked() -> None:
    logits, tokens = torch.zeros(1, 8), torch.zeros(2, 4, dtype=torch.int32)
    logits[0, 3], logits[0, 4] = 2.0, 1.0
    sampler, one, three = Sampler(2, 8, CPU), torch.tensor([1]), torch.tensor([3])
    chosen = []
    biased = SamplingParams(logit_bias=(LogitBias(3, -5.0),), logprobs=1)
    for params in (biased, SamplingParams(), biased, SamplingParams(frequency_penalty=0.1)):
        starts = [Start(1, params, 0)]
        sampler.start_rows(StartedRows.of(starts), RowBiases.of(starts))
        chosen += sampler.sample(logits, one, three, tokens, None, [1]).tolist()
        assert bool(sampler.logprobs.begin(logits, one, [1])) == (params.logprobs is not None)
        assert sampler.changes_scores == bool(params.logit_bias or params.frequency_penalty)
    assert chosen == [4, 3, 4, 3]


def test_a_banned_token_is_drawn_where_nothing_else_is_allowed() -> None:
    """A text ends with its schema, before its minimum of tokens."""
    sampler, starts = Sampler(1, 8, CPU), [Start(0, SamplingParams(min_tokens=9), 0, 2, (3,))]
    sampler.start_rows(StartedRows.of(starts), RowBiases.of(starts))
    only_the_end, tokens = torch.tensor([[1 << 3]], dtype=torch.int32), torch.zeros(1, 8, dtype=torch.int32)
    at = torch.tensor([4])
    chosen = sampler.sample(
        torch.zeros(1, 8), torch.tensor([0]), at, tokens, only_the_end, [0], at.numpy().astype("int32")
    )
    assert chosen.tolist() == [3]


def test_position_and_seed_change_the_draw() -> None:
    logits = torch.zeros(1, VOCAB)
    params = [SamplingParams(temperature=1.0)]
    assert draw(logits, params, [1]) == draw(logits, params, [1])
    assert draw(logits, params, [1]) != draw(logits, params, [2])
    assert draw(logits, params, [1]) != draw(logits, params, [1], positions=[4])


def test_a_row_that_changes_hands_takes_the_new_parameters() -> None:
    logits = random_logits(1, seed=6)
    sampler = Sampler(2, VOCAB, CPU)
    one, three, tokens = torch.tensor([1]), torch.tensor([3]), torch.zeros(2, 4, dtype=torch.int32)
    sampler.start_rows(StartedRows.of([Start(1, SamplingParams(temperature=3.0), 8)]))
    hot = sampler.sample(logits, one, three, tokens, None, members=[1])
    sampler.start_rows(StartedRows.of([Start(1, SamplingParams(), 0)]))
    cold = sampler.sample(logits, one, three, tokens, None, members=[1])
    assert hot.tolist() == draw(logits, [SamplingParams(temperature=3.0)], [8])
    assert cold.tolist() == logits.argmax(-1).tolist()


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_row_with_broken_scores_gets_no_token_and_its_mates_theirs(wrong: float) -> None:
    logits = random_logits(8, seed=7)
    params = [SamplingParams(), SamplingParams(temperature=1.0), FILTERS[3], SamplingParams(repetition_penalty=1.3)] * 2
    wanted = draw(logits, params, [5] * 8)
    logits[range(4), [0, 999, 7, 31]] = wrong
    assert draw(logits, params, [5] * 8) == [sampling.NO_TOKEN] * 4 + wanted[4:]


def test_a_row_whose_mask_allows_nothing_gets_no_token() -> None:
    bitmask = torch.full((2, -(-VOCAB // 32)), -1, dtype=torch.int32)
    bitmask[0] = 0
    chosen = draw(random_logits(2), [SamplingParams(), FILTERS[3]], [1, 2], bitmask=bitmask)
    assert chosen[0] == sampling.NO_TOKEN != chosen[1]


def test_gumbel_noise_is_finite_at_both_ends() -> None:
    noise = sampling.gumbel(torch.tensor([0, 1, 2**31, 2**32 - 1]))
    assert noise.isfinite().all()
    assert (noise.diff() < 0).all(), "falls as the word grows"


def test_rows_that_no_sequence_has_yet_are_greedy() -> None:
    sampler = Sampler(2, 10, torch.device("cpu"))
    sampler.start_rows(StartedRows.of([Start(1, SamplingParams(temperature=1.0, top_p=0.5), 0)]))
    assert sampler.work([0]) == Work.of([GREEDY], penalized=False)
    assert sampler.work([0, 1]) == Work.of([GREEDY, NUCLEUS], penalized=False)
    assert sampler.work([1]) == Work(unfiltered=False, nucleus=True, filtered=True, others=False, penalized=False)
