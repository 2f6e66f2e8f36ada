"""Changed scores and log-probabilities: the reference against transformers, the kernels against the reference."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from transformers import (
    MinNewTokensLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from thothy_ai.kernels.reference import scores as reference
from thothy_ai.kernels.sampling import FOREVER, Biases, SamplingBatch, parameters
from thothy_ai.kernels.triton import scores as triton_scores

ON_GPU = torch.cuda.is_available()
VOCABULARIES = [5, 523] + ([32_000, 151_936] if ON_GPU else [])
PROMPTS = (3, 1, 6, 2)  # tokens; the outputs have 5, 5, 0 and 9
KNOWN = (8, 6, 6, 11)
OPTIONS = (
    {"repetition_penalty": 1.3, "frequency_penalty": 0.7, "presence_penalty": -0.4},
    {"frequency_penalty": -2.0},
    {"presence_penalty": 2.0, "repetition_penalty": 0.7},
    {},
)
ENTRIES: tuple[list[tuple[int, float, int]], ...] = (  # (token, value, until)
    [(1, 3.5, FOREVER), (4, -100.0, FOREVER), (4, -math.inf, 9)],
    [(2, -math.inf, 7), (3, -math.inf, 6)],  # the second one's time is over
    [],
    [(0, 1.0, FOREVER)],
)


def case(vocab: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[SamplingBatch, Biases]:
    """Members in another order than their rows, of which there are more."""
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(6, vocab, generator=generator) * 3).to(dtype)
    token_ids = torch.randint(min(vocab, 7), (9, 40), generator=generator).to(torch.int32)
    table = torch.full((9, len(parameters(vocab_size=vocab))), math.nan, dtype=torch.float64)
    tokens, untils = torch.zeros(2, 9, 5, dtype=torch.int32)
    values = torch.zeros(9, 5)
    rows, positions = torch.tensor([0, 7, 5, 3, 1, 0]), torch.zeros(6, dtype=torch.int64)
    for place, (options, prompt, entries) in enumerate(zip(OPTIONS, PROMPTS, ENTRIES, strict=True)):
        row, positions[place + 1] = int(rows[place + 1]), KNOWN[place]
        table[row] = torch.tensor(parameters(**options, prompt_tokens=prompt, vocab_size=vocab))
        for index, entry in enumerate(entries):
            tokens[row, index], values[row, index], untils[row, index] = (torch.tensor(each) for each in entry)
    return SamplingBatch(logits, rows, positions, token_ids, None, table), Biases(tokens, values, untils)


MEMBERS = torch.tensor([1, 2, 3, 4])


def expected(step: SamplingBatch, place: int) -> Tensor:
    """By transformers' processors in its order; frequency and presence, which it lacks, by OpenAI's formula."""
    options, prompt, known = OPTIONS[place], PROMPTS[place], KNOWN[place]
    row = step.token_ids[step.rows[place + 1], :known].to(torch.int64)
    scores = step.logits[place + 1].to(torch.float32)[None].clone()
    lasting = {(token,): value for token, value, until in ENTRIES[place] if until == FOREVER}
    if lasting:
        scores = SequenceBiasLogitsProcessor(lasting)(row[None], scores)
    scores = RepetitionPenaltyLogitsProcessor(options.get("repetition_penalty", 1.0))(row[None], scores)
    counts = torch.bincount(row[prompt:], minlength=scores.shape[1])
    scores -= options.get("frequency_penalty", 0.0) * counts + options.get("presence_penalty", 0.0) * (counts > 0)
    for token, _, until in ENTRIES[place]:
        if until != FOREVER:
            scores = MinNewTokensLengthLogitsProcessor(prompt, until - prompt, [token])(row[None], scores)
    return scores[0]


@pytest.mark.parametrize("vocab", VOCABULARIES)
def test_changed_scores_are_those_of_transformers(vocab: int) -> None:
    step, biases = case(vocab)
    before = step.logits.clone()
    ours = reference.changed_scores(step, MEMBERS, biases)
    for place in range(4):
        torch.testing.assert_close(ours[place], expected(step, place), rtol=1e-6, atol=1e-6)
    assert torch.equal(step.logits, before)


def on(device: torch.device, step: SamplingBatch, biases: Biases) -> tuple[SamplingBatch, Tensor, Biases]:
    sent = SamplingBatch(*(None if field is None else field.to(device) for field in step))
    return sent, MEMBERS.to(device), Biases(*(field.to(device) for field in biases))


@pytest.mark.parametrize("vocab", VOCABULARIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_changed_scores_in_triton(vocab: int, dtype: torch.dtype, device: torch.device) -> None:
    step, biases = case(vocab, dtype, seed=vocab)
    ours = triton_scores.changed_scores(*on(device, step, biases)).cpu()
    torch.testing.assert_close(ours, reference.changed_scores(step, MEMBERS, biases), rtol=1e-6, atol=1e-6)


def test_a_view_of_wider_logits_is_read_by_its_stride(device: torch.device) -> None:
    step, biases = case(523)
    wide = torch.cat([step.logits, torch.full((6, 60), math.nan)], dim=1)[:, :523]
    ours = triton_scores.changed_scores(*on(device, step._replace(logits=wide), biases)).cpu()
    torch.testing.assert_close(ours, reference.changed_scores(step, MEMBERS, biases), rtol=1e-6, atol=1e-6)


def test_long_outputs_are_counted_whole(device: torch.device) -> None:
    """Longer than what one program counts."""
    token_ids = torch.randint(7, (2, 3000), generator=torch.Generator().manual_seed(1)).to(torch.int32)
    made = [parameters(frequency_penalty=0.01, prompt_tokens=prompt, vocab_size=9) for prompt in (5, 1500)]
    step = SamplingBatch(
        torch.zeros(2, 9), torch.arange(2), torch.tensor([2999, 2500]), token_ids, None, torch.tensor(made)
    )
    none = Biases(torch.zeros(2, 1, dtype=torch.int32), torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.int32))
    sent = SamplingBatch(*(None if field is None else field.to(device) for field in step))
    biases = Biases(*(field.to(device) for field in none))
    counts = -100 * triton_scores.changed_scores(sent, torch.arange(2, device=device), biases).cpu()
    for row, (prompt, known) in enumerate(((5, 2999), (1500, 2500))):
        wanted = torch.bincount(token_ids[row, prompt:known].to(torch.int64), minlength=9)
        torch.testing.assert_close(counts[row], wanted.to(torch.float32), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("vocab", VOCABULARIES)
@pytest.mark.parametrize("top", [0, 1, 5])
def test_log_probabilities(vocab: int, top: int, device: torch.device) -> None:
    step, _ = case(vocab, seed=3)
    members, tokens = torch.tensor([5, 0, 2]), torch.tensor([vocab - 1, -1, 3])
    wanted = step.logits[members].log_softmax(dim=-1)
    for made in (
        reference.token_logprobs(step.logits, members, tokens, top),
        triton_scores.token_logprobs(step.logits.to(device), members.to(device), tokens.to(device), top),
    ):
        assert made.top.shape == made.top_tokens.shape == (3, top)
        chosen = wanted.gather(1, tokens.clamp(min=0)[:, None]).squeeze(1)
        torch.testing.assert_close(made.chosen.cpu(), chosen, rtol=0, atol=1e-5)
        torch.testing.assert_close(made.top.cpu(), wanted.topk(top).values, rtol=0, atol=1e-5)
        assert torch.equal(made.top_tokens.cpu(), wanted.topk(top).indices)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_log_probabilities_where_much_is_impossible(device: torch.device) -> None:
    """Whole lines of -inf, as a model with a padded vocabulary may give."""
    logits = torch.full((2, 20_000), -math.inf)
    logits[0, [9000, 19_999]] = torch.tensor([1.0, 2.0])
    logits[1, 0] = 5.0
    members, tokens = torch.arange(2, device=device), torch.tensor([9000, 0], device=device)
    made = triton_scores.token_logprobs(logits.to(device), members, tokens, 1)
    wanted = logits.log_softmax(dim=-1)
    torch.testing.assert_close(made.chosen.cpu(), wanted[[0, 1], [9000, 0]], rtol=0, atol=1e-5)
    torch.testing.assert_close(made.top.cpu()[:, 0], wanted.amax(-1), rtol=0, atol=1e-5)
