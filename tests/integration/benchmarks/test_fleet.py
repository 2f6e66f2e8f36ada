"""The fleet benchmark does not wait for what cannot happen, and does not report what did not."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from benchmarks import fleet
from benchmarks.phases import BenchmarkError, Phases, PhaseTimeoutError
from tests.support.null_stack import NEVER, NullStack
from tests.support.small_tokenizer import write_tokenizer
from thothy_ai.bench.models import random_folder
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.process.gpus import Gpu

pytestmark = pytest.mark.usefixtures("clean_environment")
PATIENCE = 300.0
ONE = fleet.placements(None, 1, ())


class Silent(NullStack):
    """Its engine never answers."""

    latency = NEVER


class Dying(Silent):
    """Its worker is killed as soon as there are jobs."""

    killed = False

    def wait(self, timeout: float | None = None) -> bool:
        worker = self.pids()["worker"]
        if not self.killed and worker:
            self.killed = True
            os.kill(worker, signal.SIGKILL)
        return super().wait(timeout)


class Impatient(Silent):
    """The limit of the drain is over once it is waited for."""

    def wait(self, timeout: float | None = None) -> bool:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        return super().wait(timeout)


@pytest.fixture(autouse=True)
def few_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "WARM_UP_JOBS", 4)


def test_a_process_that_ends_ends_the_benchmark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fleet, "EmbeddedStack", Dying)
    with pytest.raises(BenchmarkError, match=r"^worker was killed by SIGKILL"):
        fleet.measure(Path("null"), ONE, 4, Phases(PATIENCE), 5.0)
    said = capsys.readouterr().err
    assert "starting 1 engine (--device cpu --threads" in said
    assert "\nengine | thothy engine: ready at unix://" in said


def test_a_drain_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "EmbeddedStack", Impatient)
    with pytest.raises(PhaseTimeoutError, match=r"^warm-up: 4 jobs: not done after 300 s, 0 of 4 ended"):
        fleet.measure(Path("null"), ONE, 4, Phases(PATIENCE), 5.0)


def test_jobs_that_fail_are_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """The null engine does not know the syntax of this schema's pattern."""
    monkeypatch.setattr(fleet, "EmbeddedStack", NullStack)
    with pytest.raises(BenchmarkError, match=r"^warm-up: not every job has succeeded: 4 failed invalid_grammar$"):
        fleet.measure(Path("null"), ONE, 4, Phases(PATIENCE), 5.0)


def test_jobs_of_the_workload_s_lengths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths = (12, 25, 40, 60)
    workload = tmp_path / "workload.json"
    workload.write_text(json.dumps({"jobs": [["hook", 6, 6, tokens] for tokens in lengths]}))
    monkeypatch.setattr(fleet, "WORKLOAD", workload)
    tokenizer, model = write_tokenizer(tmp_path), tmp_path / "tiny"
    model.mkdir()
    random_folder("tiny", tokenizer, model)
    found = fleet.measure(model, ONE, 8, Phases(PATIENCE), fleet.characters_per_token(tokenizer))
    assert found.seconds > 0
    assert found.shares == ((8, found.seconds),)
    assert found.cells() == (f"{found.tokens:,}", "8", f"{found.seconds:.2f}")
    assert found.tokens > sum(lengths), "a vocabulary of bytes needs several tokens for a character"
    assert f"measured: {found.tokens:,} output tokens; the workload has {2 * sum(lengths)}" in capsys.readouterr().err


def test_more_engines_than_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "all_gpus", lambda: (Gpu(0, "GPU-0", "a GPU"),))
    assert [each.arguments for each in fleet.engines_here(1)] == [("--device", "cuda")]
    with pytest.raises(InvalidRequestError, match=r"^2 engines need as many GPUs; 1 can be used here$"):
        fleet.engines_here(2)
