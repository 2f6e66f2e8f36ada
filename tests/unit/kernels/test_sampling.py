"""Sampling in Triton against its plain-torch reference: the same words, survivors and choices."""

from __future__ import annotations

import math
import random

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from tests.support.sweep import DEEP, spread
from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.step import Start, StartedRows
from thothy_ai.engine.execution.sampler import Sampler
from thothy_ai.kernels.reference import philox, sampling
from thothy_ai.kernels.sampling import NO_TOKEN, Column, SamplingBatch, Work, parameters
from thothy_ai.kernels.triton import philox as philox_triton
from thothy_ai.kernels.triton.sampling.filtered_kernel import survival_threshold
from thothy_ai.kernels.triton.sampling.launches import CHOOSING, FILTERING, Tile
from thothy_ai.kernels.triton.sampling.token_chooser import TokenChooser, seen_tokens
from thothy_ai.kernels.triton.sampling.trial_kernels import CHUNK, DECIDED, FAILED

ON_GPU = torch.cuda.is_available()
SMALL = Tile(lines=32, line=8, warps=4)  # so that a small vocabulary takes several tiles, and several parts
TILES = {"choosing": CHOOSING, "filtering": FILTERING} if ON_GPU else {"choosing": SMALL, "filtering": SMALL}
SEVERAL_CHUNKS = 5 * CHUNK * TILES["choosing"].tokens // 4 + 20  # 1,300 under the interpreter
VOCABULARIES = [5, 523] + ([32_000, 128_256, 151_936] if ON_GPU else [])
NEVER = -math.inf
Options = dict[str, float]
MIXED: list[Options] = [
    {},
    {"temperature": 1.0},
    {"temperature": 1e-9, "top_k": 3},
    {"temperature": 1.3, "top_p": 0.8},
    {"temperature": 0.8, "top_k": 50, "top_p": 0.9, "min_p": 0.02},
    {"repetition_penalty": 1.7},
    {"temperature": 2.0, "min_p": 0.03, "repetition_penalty": 0.6},
]


def random_logits(rows: int, vocab: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3


def step_of(
    logits: Tensor,
    options: list[Options],
    *,
    bitmask: Tensor | None = None,
    token_ids: Tensor | None = None,
    at: int = 7,
) -> SamplingBatch:
    """A step on the CPU; its members own the table's rows from the last to the first."""
    count, vocab = logits.shape
    made = [parameters(**each, seed=3 + 2**33 * i, vocab_size=vocab) for i, each in enumerate(options)]
    rows = torch.arange(count).flip(0)
    tokens = torch.zeros(count, 64, dtype=torch.int32) if token_ids is None else token_ids
    table = torch.tensor(made, dtype=torch.float64).flip(0)
    return SamplingBatch(logits, rows, at + torch.arange(count), tokens, bitmask, table)


def work_of(step: SamplingBatch) -> Work:
    kinds, penalties = step.table[step.rows, Column.KIND], step.table[step.rows, Column.PENALTY]
    return Work.of(set(kinds.tolist()), penalized=bool((penalties != 1).any()))


def to(device: torch.device, step: SamplingBatch) -> SamplingBatch:
    return SamplingBatch(*(None if field is None else field.to(device) for field in step))


def choose(step: SamplingBatch, device: torch.device) -> list[int]:
    chooser = TokenChooser(len(step.rows), device, **TILES)
    chosen = chooser(to(device, step), work_of(step))
    assert chosen.dtype == torch.int64
    return chosen.tolist()


@triton.jit
def threshold_kernel(
    threshold,
    logits,
    vocab,
    temperature,
    top_k,
    top_p,
    min_p,
    LINES: tl.constexpr,  # noqa: N803
    LINE: tl.constexpr,  # noqa: N803
):
    found = survival_threshold(logits, None, None, 1.0, vocab, temperature, top_k, top_p, min_p, LINES, LINE)
    tl.store(threshold, found)


def survivors(row: Tensor, options: Options, device: torch.device) -> set[int]:
    threshold = torch.full((1,), math.nan, device=device)
    made = parameters(**options, vocab_size=len(row))
    arguments = [made[c] for c in (Column.TEMPERATURE, Column.TOP_K, Column.TOP_P, Column.MIN_P)]
    tile = TILES["filtering"]
    threshold_kernel[(1,)](
        threshold, row.to(device), len(row), *map(float, arguments), LINES=tile.lines, LINE=tile.line,
        num_warps=tile.warps,
    )  # fmt: skip
    return set((row >= threshold.cpu()).nonzero().flatten().tolist())


def expected_survivors(row: Tensor, options: Options) -> set[int]:
    made = torch.tensor(parameters(**options, vocab_size=len(row)))
    scaled = (row.to(torch.float32) / made[Column.TEMPERATURE])[None]
    scores, tokens = scaled.sort(dim=-1, descending=True, stable=True)
    top_k, top_p, min_p = (made[c : c + 1] for c in (Column.TOP_K, Column.TOP_P, Column.MIN_P))
    kept = sampling.survivors(scores, scaled.logsumexp(-1), top_k.to(torch.int64), top_p, min_p)
    return set(tokens[kept].tolist())


FILTERS: list[Options] = [
    {"top_k": 1},
    {"top_k": 2},
    {"top_k": 37},
    {"top_k": 522},
    {"top_p": 1e-6},
    {"top_p": 0.5},
    {"top_p": 0.999},
    {"min_p": 0.1},
    {"top_k": 40, "top_p": 0.9},
    {"top_k": 100, "top_p": 0.7, "min_p": 0.05},
    {"top_k": 5000, "top_p": 0.95, "temperature": 0.3},
]
FLAT = torch.linspace(-1e-3, 1e-3, 523)
STAIRS = (torch.arange(523) % 5).to(torch.float32)
ALONE = torch.full((523,), NEVER).index_fill(0, torch.tensor([311]), 2.0)
FEW = torch.full((523,), NEVER).index_copy(0, torch.tensor([7, 300, 522]), torch.tensor([1.0, 3.0, 2.5]))
ROWS = {
    "bfloat16": random_logits(1, 523)[0].to(torch.bfloat16),
    "float32": random_logits(1, 523, seed=1)[0],
    "flat": FLAT,
    "ties": STAIRS,
    "equal": torch.full((523,), -4.0),
    "one token": ALONE,
    "three tokens": FEW,
    "far apart": torch.cat([torch.tensor([80.0, -3e4, 1e-30, -1e-30, 0.0]), torch.linspace(-90, -70, 518)]),
    "neighbours": torch.tensor([1.0, 1.0 + 2**-23, 1.0 + 2**-22] * 174 + [1.0]),
}


@pytest.mark.parametrize("name", ROWS)
def test_survivors_are_those_of_the_reference(name: str, device: torch.device) -> None:
    row = ROWS[name]
    for options in FILTERS:
        with_temperature = {"temperature": 1.2, **options}
        assert survivors(row, with_temperature, device) == expected_survivors(row, with_temperature), options


@pytest.mark.skipif(not ON_GPU, reason="too large for the interpreter")
@pytest.mark.parametrize("vocab", VOCABULARIES[2:])
@pytest.mark.parametrize("options", FILTERS)
def test_survivors_of_a_large_vocabulary(vocab: int, options: Options, device: torch.device) -> None:
    """A token may differ where masses are rounded: the reference adds up a hundred thousand of them one by one."""
    for seed, deviation in enumerate((0.1, 1.0, 3.0)):
        row = (random_logits(1, vocab, seed)[0] * deviation).to(torch.bfloat16 if seed % 2 else torch.float32)
        with_temperature = {"temperature": 0.9, **options}
        ours, theirs = survivors(row, with_temperature, device), expected_survivors(row, with_temperature)
        rounding = 0 if "top_p" not in options else 1e-3 * len(theirs) + len(row[row == row[list(theirs)].min()])
        assert len(ours ^ theirs) <= rounding


KINDS: list[Options] = [
    {},
    {"temperature": 1.0},
    {"temperature": 1.0, "top_k": 4, "top_p": 0.5, "min_p": 0.1},
    {"repetition_penalty": 1.7},
    {"temperature": 1.0, "top_p": 0.9, "repetition_penalty": 1.7},
]


def test_a_row_without_any_token_gets_none(device: torch.device) -> None:
    step = step_of(torch.full((5, 523), NEVER), KINDS)
    assert choose(step, device) == sampling.choose(step, work_of(step)).tolist() == [NO_TOKEN] * 5


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 300, 522])
def test_a_score_that_is_no_finite_number_leaves_its_row_alone_without_a_token(
    wrong: float, place: int, device: torch.device
) -> None:
    logits = random_logits(10, 523)
    whole = step_of(logits, KINDS * 2)
    wanted = choose(whole, device)
    broken = whole._replace(logits=logits.index_put((torch.arange(5), torch.tensor(place)), torch.tensor(wrong)))
    assert choose(broken, device) == [NO_TOKEN] * 5 + wanted[5:]
    assert sampling.choose(broken, work_of(broken)).tolist() == [NO_TOKEN] * 5 + wanted[5:]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_masked_score_may_be_anything(wrong: float, device: torch.device) -> None:
    masked = torch.full((5, 17), -1, dtype=torch.int32).index_fill(1, torch.tensor([9]), 0)
    whole = step_of(random_logits(5, 523), KINDS, bitmask=masked)
    broken = whole._replace(logits=whole.logits.index_fill(1, torch.tensor([9 * 32 + 5]), wrong))
    wanted = sampling.choose(whole, work_of(whole)).tolist()
    assert choose(broken, device) == sampling.choose(broken, work_of(broken)).tolist() == wanted


@pytest.mark.skipif(not ON_GPU, reason="too large for the interpreter")
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_broken_row_of_a_large_vocabulary(wrong: float, device: torch.device) -> None:
    step = step_of(random_logits(10, 128_256).to(torch.bfloat16), KINDS * 2)
    wanted = choose(step, device)
    step.logits[range(5), [0, 70_001, 128_255, 1, 70_001]] = wrong
    assert choose(step, device) == [NO_TOKEN] * 5 + wanted[5:]


LINES, LINE = 128, 8  # of a program's tile


@triton.jit
def words_kernel(words, seeds, positions, vocab_size, LINES: tl.constexpr, LINE: tl.constexpr):  # noqa: N803
    row = tl.program_id(0)
    seed = tl.load(seeds + row)
    position = tl.load(positions + row).to(tl.uint32)
    first = (tl.program_id(1) * LINES + tl.arange(0, LINES)) * LINE
    made = philox_triton.line_words(first, seed.to(tl.uint32), (seed >> 32).to(tl.uint32), position, LINE)
    token = first[:, None] + tl.arange(0, LINE)[None, :]
    tl.store(words + row.to(tl.int64) * vocab_size + token, made.to(tl.int64), mask=token < vocab_size)


@pytest.mark.parametrize("vocab", VOCABULARIES)
def test_words_are_those_of_the_reference(vocab: int, device: torch.device) -> None:
    seeds = torch.tensor([0, 7, 2**63 - 1, 2**40 + 3])
    positions = torch.tensor([0, 1, 40_000, 2**31])
    words = torch.empty(len(seeds), vocab, dtype=torch.int64, device=device)
    grid = (len(seeds), triton.cdiv(vocab, LINES * LINE))
    words_kernel[grid](words, seeds.to(device), positions.to(device), vocab, LINES=LINES, LINE=LINE)
    assert torch.equal(words.cpu(), philox.vocabulary_words(seeds, positions, vocab))


@triton.jit
def gumbel_kernel(noise, words, COUNT: tl.constexpr):  # noqa: N803
    index = tl.arange(0, COUNT)
    tl.store(noise + index, philox_triton.gumbel(tl.load(words + index).to(tl.uint32)))


def test_noise_is_that_of_the_reference_up_to_rounding(device: torch.device) -> None:
    edges = [0, 1, 2, 100, 255, 2**16, 2**24, 2**24 + 1, 2**31 - 1, 2**31, 2**32 - 2**9, 2**32 - 2, 2**32 - 1]
    random = torch.randint(2**32, (1024 - len(edges),), generator=torch.Generator().manual_seed(2))
    words = torch.cat([torch.tensor(edges), random])
    noise = torch.full((1024,), math.nan, device=device)
    gumbel_kernel[(1,)](noise, words.to(device), COUNT=1024)
    torch.testing.assert_close(noise.cpu(), sampling.gumbel(words), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("vocab", VOCABULARIES)
@pytest.mark.parametrize(("dtype", "masked"), [(torch.float32, True), (torch.bfloat16, False), (torch.float16, True)])
def test_a_mixed_step_chooses_what_the_reference_chooses(
    vocab: int, dtype: torch.dtype, masked: bool, device: torch.device
) -> None:
    generator = torch.Generator().manual_seed(vocab)
    logits = random_logits(len(MIXED), vocab, seed=vocab).to(dtype)
    token_ids = torch.randint(vocab, (len(MIXED), 64), generator=generator).to(torch.int32)
    words = torch.randint(-(2**31), 2**31, (len(MIXED), -(-vocab // 32)), generator=generator).to(torch.int32)
    step = step_of(logits, MIXED, bitmask=words | 4 if masked else None, token_ids=token_ids)
    assert choose(step, device) == sampling.choose(step, work_of(step)).tolist()


@pytest.mark.parametrize("seed", range(3 if DEEP else 1))
def test_random_parameters_choose_what_the_reference_chooses(seed: int, device: torch.device) -> None:
    """Among them top-k wider than the reference's first look, where it and the kernel measure the nucleus apart."""
    pick, vocab = random.Random(seed), 700
    options: list[Options] = [
        {
            "temperature": pick.choice([0.3, 1.0, 2.0]),
            "top_k": pick.choice([0, pick.randint(1, 699), pick.randint(256, 699), 255, 256, 257, 699]),
            "top_p": pick.choice([1.0, 0.3, 0.95, pick.random()]),
            "min_p": pick.choice([0.0, 0.0, 0.02, pick.random()]),
        }
        for _ in range(8)
    ]
    logits = random_logits(len(options), vocab, seed) * pick.choice([0.1, 0.3, 1.0])
    for at in range(0, 200, 25 if ON_GPU else 50):
        step = step_of(logits, options, at=at)
        assert choose(step, device) == sampling.choose(step, work_of(step)).tolist(), options


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("options", [{"top_p": 0.9}, {"top_p": 0.15}, {"top_p": 0.4, "min_p": 0.3}])
def test_nuclei_are_drawn_from_by_trial_and_what_fails_by_search(
    options: Options, masked: bool, device: torch.device
) -> None:
    """In a vocabulary of several chunks, which several programs share: where the nucleus is small, some rows fail in
    each trial.
    """
    rows, vocab = 16 if ON_GPU else 8, SEVERAL_CHUNKS
    generator = torch.Generator().manual_seed(4)
    words = torch.randint(-(2**31), 2**31, (rows, -(-vocab // 32)), generator=generator).to(torch.int32)
    logits = random_logits(rows, vocab) * 0.2
    step = step_of(logits, [{"temperature": 0.7, **options}] * rows, bitmask=words if masked else None)
    chooser = TokenChooser(rows, device, **TILES)
    chosen = chooser(to(device, step), work_of(step)).tolist()
    assert chosen == sampling.choose(step, work_of(step)).tolist()
    filtered = chooser._filtered
    assert set(filtered._states.tolist()) == ({DECIDED} if options == {"top_p": 0.9} else {DECIDED, FAILED})
    assert not filtered._arrived.any()


def test_a_smaller_step_is_no_matter_of_what_the_one_before_left(device: torch.device) -> None:
    """Nor are a greedy row, as padding is, and rows that are searched beside nuclei."""
    options: list[Options] = [{"top_p": 0.15}, {}, {"top_p": 0.9}, {"top_k": 5}, {"top_p": 0.3}, {"min_p": 0.5}] * 2
    chooser = TokenChooser(16, device, **TILES)
    for seed, count in enumerate((12, 5, 3, 12)):
        chosen = [{"temperature": 0.9, **each} if each else each for each in options[:count]]
        step = step_of(random_logits(count, SEVERAL_CHUNKS, seed) * 0.2, chosen)
        work = work_of(step)
        assert chooser(to(device, step), work).tolist() == sampling.choose(step, work).tolist()


@pytest.mark.parametrize(
    ("name", "options"),
    spread(
        ROWS,
        [{"top_p": 1e-50}, {"top_p": 1e-6}, {"top_p": 0.5}, {"top_p": 0.99999999}, {"top_p": 0.9, "min_p": 0.1}],
        each=2,
    ),
)
def test_odd_rows_are_drawn_from_as_by_the_reference(name: str, options: Options, device: torch.device) -> None:
    """A tie at the edge of the nucleus is in it or not as a whole, whichever of its tokens is tried."""
    logits = ROWS[name].expand(4, -1)
    step = step_of(logits, [{"temperature": 1.2, **options}] * len(logits))
    assert choose(step, device) == sampling.choose(step, work_of(step)).tolist()


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.9}])
def test_a_member_alone_is_what_it_is_among_others(options: Options, device: torch.device) -> None:
    """A row that is alone is divided over more programs than one of many."""
    logits = random_logits(3000 if ON_GPU else 3, 523)
    step = step_of(logits, [options] * len(logits))
    together = choose(step, device)
    for member in (0, 2):
        alone = step._replace(
            **{name: getattr(step, name)[member : member + 1] for name in ("logits", "rows", "positions")}
        )
        assert choose(alone, device) == together[member : member + 1]


def test_the_first_of_equals_is_chosen_and_scratch_is_left_as_it_was(device: torch.device) -> None:
    logits = torch.zeros(2, 523)
    logits[0, [300, 200, 522]] = 1.0
    step = step_of(logits, [{}, {}])
    chooser = TokenChooser(2, device, **TILES)
    for _ in range(2):
        assert chooser(to(device, step), work_of(step)).tolist() == [200, 0]


def test_a_view_of_wider_logits_is_read_by_its_stride(device: torch.device) -> None:
    wide = random_logits(4, 600)
    step = step_of(wide[:, :523], [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 9}, {}])
    assert choose(step, device) == sampling.choose(step, work_of(step)).tolist()


def test_seen_tokens_are_those_before_the_position_of_penalized_rows(device: torch.device) -> None:
    token_ids = torch.tensor([[5, 31, 31, 40, 6], [0, 63, 9, 9, 9]], dtype=torch.int32)
    step = step_of(torch.zeros(2, 70), [{}, {"repetition_penalty": 1.1}], token_ids=token_ids, at=2)
    before = torch.full((2, 3), -1, dtype=torch.int32, device=device)
    seen = seen_tokens(to(device, step), before).cpu().to(torch.int64) & 0xFFFF_FFFF
    assert seen.tolist() == [[0, 0, 0], [1 << 5 | 1 << 31, 0, 0]], (
        "of row 0, which is member 1's, three tokens are real"
    )


@pytest.mark.skipif(not ON_GPU, reason="on a CPU the sampler runs the reference")
def test_the_engines_sampler_chooses_on_a_gpu_what_it_chooses_on_a_cpu(device: torch.device) -> None:
    step = step_of(random_logits(len(MIXED), 32_000), MIXED)
    members = step.rows.tolist()
    mask = torch.full((len(MIXED), 1000), 0x5555_5555, dtype=torch.int32)
    chosen = []
    for where in (device, torch.device("cpu")):
        sampler, sent = Sampler(len(MIXED), 32_000, where), to(where, step)
        sampler.start_rows(StartedRows.of(Start(row, SamplingParams(**MIXED[row]), row) for row in members))
        bits = mask.to(where)
        chosen.append(sampler.sample(sent.logits, sent.rows, sent.positions, sent.token_ids, bits, members).tolist())
    assert chosen[0] == chosen[1]


@pytest.mark.skipif(not ON_GPU, reason="graphs are a GPU's")
def test_a_graph_replays_over_new_logits(device: torch.device) -> None:
    step = to(device, step_of(random_logits(len(MIXED), 32_000), MIXED))
    chooser, work = TokenChooser(len(MIXED), device), work_of(step)
    chooser(step, work)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chosen = chooser(step, work)
    step.logits.copy_(random_logits(len(MIXED), 32_000, seed=5))
    graph.replay()
    assert chosen.tolist() == chooser(step, work).tolist()
