"""Decode steps and their draws by way of graphs give the tokens that they give without; real graphs are tests/gpu's."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.constrained import FEW, GREEDY, VOCAB, Slots, check_constrained, check_draws, only, request
from tests.support.engine_driver import EngineDriver
from tests.support.graphs_without_gpu import rerun_captured
from tests.support.loading import load_model
from tests.support.oracle import ROOMY, random_prompts
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api import SamplingParams, TokenLogprob
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.api.step import Step
from thothy_ai.engine.execution import draws, graphs
from thothy_ai.engine.execution.draws import DrawGraphs, DrawKind
from thothy_ai.engine.execution.runner import Runner
from thothy_ai.engine.execution.step_handle import Scores
from thothy_ai.engine.models.model import Model
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel
from thothy_ai.kernels.sampling import NUCLEUS, Work

SIZES = (1, 4, 8)  # members of 2, 3, 5 and more are padded
GRAPHS = replace(ROOMY, graphs=True)
OVERLAP = pytest.mark.parametrize("overlap", [False, True])


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder: Path = tmp_path_factory.mktemp("qwen3")
    return load_model(tiny_model("qwen3", folder), device=torch.device("cpu"), dtype=torch.float32)


@pytest.fixture
def runners(monkeypatch: pytest.MonkeyPatch) -> list[Runner]:
    return rerun_captured(monkeypatch, SIZES)


def replays(runners: list[Runner]) -> tuple[int, int]:
    """Passes and draws that were replayed."""
    return sum(each._decode.graphs.replays for each in runners), sum(each._decode.draws.replays for each in runners)


@OVERLAP
def test_constrained_requests_beside_free_ones(loaded: LoadedModel, runners: list[Runner], *, overlap: bool) -> None:
    check_constrained(loaded, loaded, overlap=overlap, graphs=True)
    assert min(replays(runners)) > 10


@OVERLAP
def test_draws_do_not_depend_on_graphs(loaded: LoadedModel, runners: list[Runner], *, overlap: bool) -> None:
    check_draws(loaded, loaded, overlap=overlap, graphs=True)
    assert min(replays(runners)) > 30


def mixed() -> list[CoreRequest]:
    """Some with log-probabilities, some that change their scores for a while, some constrained, with forced tokens."""
    asked = (
        SamplingParams(temperature=0.8, top_p=0.9, repetition_penalty=1.2, seed=3),
        SamplingParams(temperature=1.0, seed=4, logprobs=2),
        SamplingParams(temperature=1.0, seed=5, min_tokens=4, frequency_penalty=0.3),
        SamplingParams(temperature=0.8, top_p=0.9, repetition_penalty=1.2, seed=6),
    )
    requests = []
    slots = [FEW, FEW, *only(1, 2, 3), *[FEW] * 9]
    for number, (prompt, each) in enumerate(zip(random_prompts(VOCAB), asked * 2, strict=True)):
        sampling = replace(each, max_tokens=7 if each.changes_scores else 9 + 3 * number)
        requests.append(request(f"{number}", prompt, sampling, Slots(slots) if number % 2 else None))
    return requests


def outputs(loaded: LoadedModel, options: EngineOptions) -> dict[str, tuple[list[int], list[TokenLogprob | None]]]:
    with EngineDriver(lambda on_events: build_core(loaded, options, on_events)) as driver:
        collected = driver.run(mixed())
    assert not [each.error for each in collected.finished.values() if each.error]
    return {id_: (tokens, collected.logprobs.get(id_, [])) for id_, tokens in collected.tokens.items()}


@OVERLAP
def test_only_draws_of_unchanged_scores_are_replayed(
    loaded: LoadedModel, runners: list[Runner], *, overlap: bool
) -> None:
    options = replace(GRAPHS, overlap=overlap)
    assert outputs(loaded, options) == outputs(loaded, replace(options, graphs=False))
    passes, replayed = replays(runners)
    [runner] = runners
    first = len(runner._decode.draws._drawn)
    assert 0 < replayed < replayed + first < passes  # others: while a request changes its scores


def test_a_step_in_parts_is_sampled_after_all_were_launched(
    loaded: LoadedModel, runners: list[Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part leaves its scores in the same buffers."""
    forward, draw, parts = Runner.forward, random.Random(1), list[int]()

    def limited(runner, step):
        if step.num_tokens == step.num_members > 1 and draw.random() < 0.3:
            parts.append(step.num_members)
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(runner, step)

    expected = outputs(loaded, GRAPHS)
    monkeypatch.setattr(Runner, "forward", limited)
    assert outputs(loaded, GRAPHS) == expected
    assert parts
    assert min(replays(runners[1:]))


def test_members_that_do_not_sample_are_left_out(loaded: LoadedModel, runners: list[Runner]) -> None:
    """Prompts whose last token comes alone, beside others of one token."""
    prompts = [(1, 2, 3, 4, 5), (1, 2, 3, 4, 6, 7, 8, 9, 10), (3,), (4,)]
    requests = [request(f"{number}", prompt, GREEDY) for number, prompt in enumerate(prompts)]

    def tokens(options: EngineOptions) -> dict[str, list[int]]:
        with EngineDriver(lambda on_events: build_core(loaded, options, on_events)) as driver:
            return driver.run(requests).tokens

    assert tokens(replace(GRAPHS, token_budget=4)) == tokens(ROOMY)
    assert min(replays(runners))


def test_a_step_that_was_sampled_cannot_be_sampled_after_another_is_launched(loaded: LoadedModel) -> None:
    """Its scores are dropped then: their memory is the next step's."""
    runner = build_core(loaded, ROOMY, lambda events: None)._runner
    step = Step.of_padding(runner._rows.padding, [1, 1])
    handle = runner.forward(step)
    runner.sample(handle, None)
    runner.sample(handle, None)
    runner.forward(step)
    with pytest.raises(RuntimeError, match="another step was launched"):
        runner.sample(handle, None)


@pytest.mark.parametrize("abridged", [False, True])
def test_a_model_of_one_kind_of_layer_is_captured_once(
    loaded: LoadedModel, runners: list[Runner], monkeypatch: pytest.MonkeyPatch, *, abridged: bool
) -> None:
    sizes = list[int]()
    capture = graphs.capture_graph

    def counted(run, pool):
        sizes.append(run.args[0])
        return capture(run, pool)

    monkeypatch.setattr(graphs, "capture_graph", counted)
    if not abridged:
        monkeypatch.setattr(Model, "abridged", lambda model, cache: (model, cache))
    build_core(loaded, GRAPHS, lambda events: None)
    assert sizes == [8, 4, 2, 1, *((8, 4, 1) if abridged else ())]


WORK = Work.of([NUCLEUS], penalized=True)
MASKED, PLAIN = DrawKind(WORK, masked=True), DrawKind(WORK, masked=False)


class Drawing:
    """Records its draws; the first ones fail, and so do all within a capture if these are to."""

    def __init__(self, failing: int = 0) -> None:
        self.drawn: list[tuple[int, bool]] = []
        self._failing = failing

    def __call__(self, size: int, kind: DrawKind) -> torch.Tensor:
        self.drawn.append((size, kind.masked))
        if len(self.drawn) <= self._failing:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return torch.full((size,), len(self.drawn))


def test_a_draw_is_captured_when_its_size_and_kind_come_again(runners: list[Runner]) -> None:
    draw = Drawing()
    made = DrawGraphs(draw)
    for size, kind in ((4, MASKED), (4, PLAIN), (8, MASKED)):
        made.run(size, kind)
    assert (made.replays, len(draw.drawn)) == (0, 3)
    for replays in (1, 2):
        assert made.run(4, MASKED).tolist() == [len(draw.drawn)] * 4
        assert made.replays == replays


def test_a_rare_draw_is_not_captured(runners: list[Runner], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws, "_DRAWS_BEFORE_CAPTURE", 3)
    made = DrawGraphs(Drawing())
    assert [(made.run(4, PLAIN), made.replays)[1] for _ in range(5)] == [0, 0, 0, 1, 2]


def test_a_first_draw_that_fails_is_no_draw(runners: list[Runner]) -> None:
    """What it would have compiled and loaded must not be in a capture."""
    draw = Drawing(failing=1)
    made = DrawGraphs(draw)
    with pytest.raises(torch.OutOfMemoryError):
        made.run(4, PLAIN)
    assert made.run(4, PLAIN).tolist() == [2] * 4
    assert not made.replays


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("not permitted")])
def test_a_draw_that_cannot_be_captured_is_drawn_without(
    runners: list[Runner], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: RuntimeError
) -> None:
    """Others are captured."""
    capture, draw = draws.capture_graph, Drawing()

    def failing(run, pool):
        if run.args == (4, PLAIN):
            raise error
        return capture(run, pool)

    monkeypatch.setattr(draws, "capture_graph", failing)
    made = DrawGraphs(draw)
    assert [made.run(4, PLAIN).tolist()[0] for _ in range(4)] == [1, 2, 3, 4]
    assert made.replays == 0
    assert [str(error) in record.message for record in caplog.records] == [True]
    for _ in range(2):
        made.run(4, MASKED)
    assert made.replays == 1


def test_scores_are_views_or_copies() -> None:
    whole = Scores.buffers(torch.rand(4, 3))
    first, chosen = whole.first(2), whole.of(np.array([True, False, False, True]))
    whole.rows.fill_(7)
    assert first.rows.tolist() == [7, 7]
    assert chosen.rows.tolist() == [0, 0]
    assert torch.equal(chosen.logits, whole.logits[[0, 3]])
    assert [column.dtype for column in whole] == [torch.float32, torch.int64, torch.int64]
