"""A verifier beside an engine: it answers and is billed, and when it hangs or dies, nothing else does."""

from __future__ import annotations

import json
import os
import queue
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.entailment import XNLI, entailment_folder
from tests.support.patience import PATIENCE
from thothy_ai.engine.api import GenerationRequest, GenerationResult
from thothy_ai.engine.api.backend import Backend, Failure, Output
from thothy_ai.engine.api.errors import EngineNotAcceptingError, ModelLoadError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.entailment.backend import VerifyingEngine
from thothy_ai.engine.entailment.verifier import Verifier
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.engine.process.factory import make_engine
from thothy_ai.engine.wire.verifier_messages import LoadVerifier

YES = '{"enum": ["yes"]}'
PAIRS = (("the tower has stairs", "it has no stairs"), ("a mayor opened the tower", "no rain"), ("rain", "rain"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return entailment_folder(tmp_path_factory.mktemp("models") / "xnli")


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[VerifyingEngine]:
    """An engine without a model, and its verifier."""
    null = NullEngine(0.0, EngineOptions("unix:///nowhere"))
    made = VerifyingEngine(null, Verifier(LoadVerifier(folder, "cpu", threads=1)))
    yield made
    made.close()


def asked(backend: Backend, request: GenerationRequest) -> queue.SimpleQueue[Output]:
    outputs: queue.SimpleQueue[Output] = queue.SimpleQueue()
    backend.submit(request, lambda found: [outputs.put(each) for each in found])  # type: ignore[func-returns-value]
    return outputs


def result(backend: Backend, request: GenerationRequest) -> GenerationResult:
    output = asked(backend, request).get(timeout=PATIENCE)
    assert isinstance(output, GenerationResult)
    return output


def test_pairs_get_labels_and_their_seconds_are_billed(engine: VerifyingEngine) -> None:
    before, worked = engine.backend.stats().core, engine.progress()
    booked = result(engine.backend, GenerationRequest("a", pairs=PAIRS, booked=True))
    direct = result(engine.backend, GenerationRequest("b", pairs=PAIRS[:1]))
    labels = json.loads(booked.text)
    assert len(labels) == len(PAIRS)
    assert set(labels) <= set(XNLI.values())
    assert json.loads(direct.text) == labels[:1]
    after = engine.backend.stats().core
    spent = booked.usage.compute_seconds + direct.usage.compute_seconds
    assert spent > 0
    assert after.busy_seconds - before.busy_seconds == pytest.approx(spent)
    assert after.attributed_seconds - before.attributed_seconds == pytest.approx(spent)
    assert after.direct_seconds - before.direct_seconds == pytest.approx(direct.usage.compute_seconds)
    assert engine.progress() > worked
    assert engine.backend.info().verifier == "xnli"


def test_other_requests_go_to_the_engine(engine: VerifyingEngine) -> None:
    assert result(engine.backend, GenerationRequest("c", text="x", schema=YES)).text == '"yes"'


@pytest.mark.parametrize("signal_", [signal.SIGSTOP, signal.SIGKILL])
def test_a_verifier_that_hangs_or_dies_answers_without_labels_and_is_replaced(
    engine: VerifyingEngine, signal_: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = engine._verifier
    monkeypatch.setattr(verifier, "stall_seconds", 0.1)
    first = verifier._process.pid
    os.kill(first, signal_)
    assert result(engine.backend, GenerationRequest(f"d{signal_}", pairs=PAIRS)).text == ""
    assert (
        result(engine.backend, GenerationRequest(f"e{signal_}", text="x", schema='{"enum": ["yes"]}')).text == '"yes"'
    )
    monkeypatch.undo()
    assert verifier.running.wait(PATIENCE)
    assert verifier._process.pid != first
    assert len(json.loads(result(engine.backend, GenerationRequest(f"f{signal_}", pairs=PAIRS)).text)) == len(PAIRS)


def test_pairs_that_were_judged_keep_their_labels_beside_one_that_was_not(
    engine: VerifyingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine._verifier, "judge", lambda _, answer: answer(["neutral", None, "entailment"], 0.0))
    text = result(engine.backend, GenerationRequest("partly", pairs=PAIRS)).text
    assert json.loads(text) == ["neutral", None, "entailment"]


def test_a_stopping_engine_takes_no_pairs(folder: Path, engine: VerifyingEngine) -> None:
    stopping = VerifyingEngine(NullEngine(0.0, EngineOptions("unix:///nowhere")), engine._verifier)
    stopping.backend.stop_accepting()
    output = asked(stopping.backend, GenerationRequest("g", pairs=PAIRS)).get(timeout=PATIENCE)
    assert isinstance(output, Failure)
    assert isinstance(output.error, EngineNotAcceptingError)


def test_an_engine_whose_verifier_cannot_be_loaded_does_not_start(tmp_path: Path) -> None:
    folder = entailment_folder(tmp_path / "odd", {0: "good", 1: "bad"})
    with pytest.raises(ModelLoadError, match=r"none of its labels says entailment \(good, bad\)"):
        make_engine(EngineOptions("unix:///nowhere", null=True, verifier=folder, threads=1))
