"""With drafts, right and wrong ones, every request gets exactly the tokens that it gets without."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.byte_tokenizer import schema_grammar
from tests.support.constrained import GREEDY, VOCAB, request
from tests.support.drafted import WITH, EagerDrafter, FickleDrafter, check_drafts, drafted, plain, spoiled
from tests.support.engine_driver import EngineDriver
from tests.support.loading import load_model
from tests.support.oracle import ROOMY, random_prompts
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.core.accounting import StepCost
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.core.parts import StepLauncher
from thothy_ai.engine.model_check.sizing import engine_sizes
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.scheduling.drafting.drafts import Drafter
from thothy_ai.engine.scheduling.drafting.step_times import StepTimes
from thothy_ai.engine.scheduling.scheduler import Scheduler
from thothy_ai.engine.scheduling.step_builder import ScheduledStep, StepBuilder
from thothy_ai.engine.weights.loader import LoadedModel


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tiny_model("qwen3", tmp_path_factory.mktemp("drafts"))
    return load_model(folder, device=torch.device("cpu"), dtype=torch.float32)


@pytest.fixture(scope="module")
def byte_model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tiny_model("llama", tmp_path_factory.mktemp("drafts"), vocab_size=300)
    return load_model(folder, device=torch.device("cpu"), dtype=torch.float32)


OPTIONS = [{}, {"overlap": True}, {"kv_tokens": 64}, {"token_budget": 7}, {"graphs": True, "overlap": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_drafts_change_no_token(loaded: LoadedModel, options: dict[str, int]) -> None:
    """Hold drafts in an engine with these options, which may preempt and cut prompts, to the tokens without drafts."""
    counts = check_drafts(loaded, loaded, **options)
    if "token_budget" not in options:  # few places: only texts that are looked at first have drafts, and all are right
        assert counts.accepted_tokens < counts.drafted_tokens
    assert counts.attributed_seconds == pytest.approx(counts.busy_seconds)


@pytest.mark.parametrize("family", ["qwen3", "mistral"])
@pytest.mark.parametrize("options", [{}, {"overlap": True}, {"graphs": True}], ids=str)
def test_drafts_beside_prompts(
    family: str, options: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts that are computed in chunks, and rows that are free beside them."""
    settings = {"sliding_window": 12} if family == "mistral" else {}
    model = load_model(tiny_model(family, tmp_path, **settings), device=torch.device("cpu"), dtype=torch.float32)
    both, build = list[bool](), StepBuilder.build

    def built(*args: Any) -> ScheduledStep | None:
        scheduled = build(*args)
        if scheduled is not None and scheduled.drafts:
            both.append(bool((scheduled.step.counts > 1).any()))
            assert (np.diff(scheduled.step.counts > 1) >= 0).all()  # single tokens come first
        return scheduled

    monkeypatch.setattr(StepBuilder, "build", built)
    check_drafts(model, model, max_rows=32, token_budget=14, **options)
    assert {*both} == {False, True}


@pytest.mark.parametrize(
    "options", [{"overlap": True}, {}, {"overlap": True, "graphs": True}, {"overlap": True, "kv_tokens": 64}], ids=str
)
def test_drafts_may_be_turned_on_and_off_at_any_step(loaded: LoadedModel, options: dict[str, int]) -> None:
    """Whether the next step has drafts says nothing about the one that is still to be read."""
    check_drafts(loaded, loaded, drafter=FickleDrafter, **options)


@pytest.mark.parametrize("family", ["llama4_text", "deepseek_v3"])
def test_drafts_over_chunks_and_over_latents(family: str, tmp_path: Path) -> None:
    model = load_model(tiny_model(family, tmp_path), device=torch.device("cpu"), dtype=torch.float32)
    check_drafts(model, model, overlap=True)


def test_the_host_is_not_timed_where_a_turn_waits_for_two_steps(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed, changes, turn = list[int](), list[int](), EngineCore._turn
    monkeypatch.setattr(FickleDrafter, "observe_host", lambda _, __, members, exposed: observed.append(members))

    def checked(core: EngineCore, last: object) -> object:
        before = len(observed)
        step = turn(core, last)  # type: ignore[arg-type]
        if last is not None and step is None:
            changes.append(len(observed) - before)
        return step

    monkeypatch.setattr(EngineCore, "_turn", checked)
    prompts = random_prompts(VOCAB)
    requests = [request(f"{number}", prompts[number], GREEDY) for number in range(3)]
    expected = plain(loaded, requests).tokens
    observed.clear()
    drafted(loaded, requests, expected.values(), replace(WITH, overlap=True), FickleDrafter)
    assert changes
    assert not any(changes)
    assert len(requests) < max(observed) <= WITH.max_rows  # drafts are members, too


def test_nothing_but_planning_delays_the_next_launch(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is counted, reported and learnt of a step waits until the next one is launched."""
    log = list[str]()

    def logged(owner: type, name: str) -> None:
        called = getattr(owner, name)

        def call(*args: Any) -> Any:
            log.append(name)
            return called(*args)

        monkeypatch.setattr(owner, name, call)

    requests = [request(f"{number}", random_prompts(VOCAB)[number], GREEDY) for number in range(3)]
    expected = plain(loaded, requests).tokens
    for owner, name in ((StepLauncher, "forward"), (EngineCore, "_read"), (EngineCore, "_publish")):
        logged(owner, name)
    for owner, name in ((EagerDrafter, "learn"), (StepCost, "weigh")):
        logged(owner, name)
    found, counts = drafted(loaded, requests, expected.values(), replace(WITH, overlap=True))
    assert found.tokens == expected
    assert counts.accepted_tokens > 0
    first, last = log.index("_read"), len(log) - log[::-1].index("_read")
    between = [after for before, after in pairwise(log[first:last]) if before == "_read"]
    assert len(between) > 3
    assert {*between} == {"forward"}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("options", [{}, {"overlap": True, "graphs": True}, {"kv_tokens": 64}], ids=str)
def test_drafts_under_a_schema(byte_model: LoadedModel, seed: int, options: dict[str, int]) -> None:
    """Grammars cut drafts, force tokens among them, and go on from the last right one; budgets end texts as before."""
    sampling = [
        SamplingParams(max_tokens=length, temperature=heat, seed=seed, ignore_eos=True)
        for length, heat in ((60, 0.0), (60, 1.5), (42, 1.0))
    ]

    def requests() -> list[CoreRequest]:
        made = [
            request(f"{number}", random_prompts(VOCAB)[number], each, schema_grammar())
            for number, each in enumerate(sampling)
        ]
        for each in made:
            each.grammar.limit(each.sampling.max_tokens)  # type: ignore[attr-defined]
        return made

    roomy = replace(ROOMY, max_context=120)
    with EngineDriver(lambda on_events: build_core(byte_model, roomy, on_events)) as driver:
        expected = driver.run(requests())
    outputs = [*expected.tokens.values()]
    found, counts = drafted(
        byte_model, requests(), [*outputs, *spoiled(outputs)], replace(roomy, drafts=True, **options)
    )
    assert found.tokens == expected.tokens
    assert {name: end.reason for name, end in found.finished.items()} == {
        name: end.reason for name, end in expected.finished.items()
    }
    assert counts.accepted_tokens > 0


def test_windows_give_blocks_back_while_drafts_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windowed = load_model(
        tiny_model("mistral", tmp_path, sliding_window=12), device=torch.device("cpu"), dtype=torch.float32
    )
    held, schedule = list[int](), Scheduler.schedule

    def counted(scheduler: Scheduler, drafter: Drafter | None = None) -> ScheduledStep | None:
        step = schedule(scheduler, drafter)
        held.extend(sequence.num_held for sequence in scheduler._running)
        return step

    monkeypatch.setattr(Scheduler, "schedule", counted)
    options = replace(ROOMY, max_context=220)
    requests = [
        request(f"{number}", random_prompts(VOCAB)[number], replace(GREEDY, max_tokens=150)) for number in range(2)
    ]
    expected = plain(windowed, requests, options)
    most = max(held)
    held.clear()
    found, counts = drafted(windowed, requests, expected.tokens.values(), replace(options, drafts=True))
    assert found.tokens == expected.tokens
    assert counts.accepted_tokens > 0
    assert max(held) <= most + 2  # a step's drafts fill a block


def test_log_probabilities_are_those_of_a_run_without_drafts(loaded: LoadedModel) -> None:
    """A request that wants some has no drafts; those beside it have."""
    requests = [
        request(f"{number}", random_prompts(VOCAB)[number], replace(GREEDY, logprobs=2 if number else None))
        for number in range(3)
    ]
    expected = plain(loaded, requests)
    found, counts = drafted(loaded, requests, expected.tokens.values(), WITH)
    assert found.tokens == expected.tokens
    assert {*found.logprobs} == {*expected.logprobs}
    for name, logprobs in expected.logprobs.items():
        for one, other in zip(found.logprobs[name], logprobs, strict=True):
            assert (one is None) == (other is None)
            if one is not None and other is not None:
                assert one.top_tokens == other.top_tokens
                assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
    assert counts.accepted_tokens > 0


def test_a_recurrent_model_refuses_drafts(tmp_path: Path) -> None:
    folder = tiny_model("qwen3_next", tmp_path)
    recurrent = load_model(folder, device=torch.device("cpu"), dtype=torch.float32)
    with pytest.raises(InvalidRequestError, match="recurrent"):
        build_core(recurrent, WITH, lambda _: None)


@pytest.mark.parametrize("options", [{"adapter_slots": 2}, {"tensor_parallel": 2}], ids=str)
def test_what_was_not_tried_together_is_refused(loaded: LoadedModel, options: dict[str, int]) -> None:
    with pytest.raises(InvalidRequestError, match="adapters or --tensor-parallel"):
        engine_sizes(loaded.config, replace(WITH, **options), torch.device("cpu"))


def test_the_arithmetic_sends_none_where_a_step_is_full(loaded: LoadedModel) -> None:
    """With as many sequences as rows, a step has no places; with fewer, drafts go on."""
    requests = [request(f"{number}", random_prompts(VOCAB)[number], GREEDY) for number in range(8)]
    expected = plain(loaded, requests)
    found, counts = drafted(loaded, requests, expected.tokens.values(), replace(WITH, max_rows=8))
    assert found.tokens == expected.tokens
    alone, fewer = drafted(loaded, requests[:2], expected.tokens.values(), replace(WITH, max_rows=8))
    assert counts.drafted_tokens == 0
    assert fewer.accepted_tokens > 0
    assert alone.tokens == {each.id: expected.tokens[each.id] for each in requests[:2]}


@pytest.mark.parametrize("overlap", [False, True])
def test_whatever_the_arithmetic_chooses_the_tokens_are_the_same(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch, *, overlap: bool
) -> None:
    """A slow device on which more tokens cost nothing, and the host's times as this machine has them; a batch that
    shrinks, whose later requests resemble the first.
    """
    monkeypatch.setattr(StepTimes, "of", lambda _, tokens: np.full(np.shape(tokens), 5.0))
    prompts = random_prompts(VOCAB)
    requests = [
        request(f"{number}", prompts[number % 4], replace(GREEDY, max_tokens=6 + number % 19)) for number in range(24)
    ]
    expected = plain(loaded, requests).tokens
    with EngineDriver(lambda on_events: build_core(loaded, replace(WITH, overlap=overlap), on_events)) as driver:
        assert driver.run(requests).tokens == expected
        assert driver.core.stats().core.accepted_tokens > 0
