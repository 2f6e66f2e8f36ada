"""A group that can't be started says why, and a rank that dies takes the group down at once."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.support.engine_driver import EngineDriver
from tests.support.oracle import ROOMY
from tests.support.tiny_models import tiny_model
from tests.support.two_ranks import START, SharedModel, two_ranks
from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest, StepFailedError
from thothy_ai.engine.api.errors import InvalidRequestError, ModelLoadError
from thothy_ai.engine.distributed import leader
from thothy_ai.engine.distributed.leader import Group
from thothy_ai.engine.weights.loader import load_model

LONG = SamplingParams(max_tokens=10_000, ignore_eos=True)


def test_a_rank_that_never_comes_up_ends_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "rank_that_sleeps.py").write_text("import time; time.sleep(600)")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(leader, "_MODULE", "rank_that_sleeps")
    monkeypatch.setattr(leader, "_FIND_SECONDS", 0.3)
    with pytest.raises(ModelLoadError, match=r"rank 1 has not come up within 0\.3 s"):
        Group(START)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("raise SystemExit(3)", "rank 1's process ended with status 3"),
        ("import os; os.kill(os.getpid(), 9)", "rank 1's process was killed by SIGKILL"),
    ],
)
def test_a_rank_that_dies_at_its_start_is_noticed_at_once(
    script: str, says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "rank_that_dies.py").write_text(script)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(leader, "_MODULE", "rank_that_dies")
    with pytest.raises(ModelLoadError, match=says):
        Group(START)


def test_other_code_on_a_rank_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "code_digest", lambda: "of before")
    with pytest.raises(ModelLoadError, match="rank 1 runs other code than rank 0"):
        Group(START)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are GPUs")
def test_devices_that_are_not_there_are_counted() -> None:
    with pytest.raises(InvalidRequestError, match="torch sees 0 GPUs"):
        Group(replace(START, device="cuda"))


@pytest.mark.parametrize("options", [{"adapters": ("voice=folder",)}, {"adapter_slots": 4}])
def test_adapters_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError, match="adapters and --tensor-parallel 2 cannot be combined"):
        Group(replace(START, **options))


def test_a_rank_that_dies_names_the_step_s_members(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path)
    loaded = load_model(folder, device=torch.device("cpu"), dtype=torch.float32)
    with two_ranks() as group, EngineDriver(lambda on_events: SharedModel(group, folder).build(
        loaded, ROOMY, on_events
    )) as driver:  # fmt: skip
        for name in ("one", "two"):
            driver.submit(CoreRequest(name, (1, 2, 3), replace(LONG, max_tokens=40)))
        driver.submit(CoreRequest("three", (1, 2, 3), replace(LONG, max_tokens=50)))
        driver.core.start()
        while not driver.collected.tokens:
            driver.gather()
        began = time.monotonic()
        os.kill(group._others[0]._process.pid, signal.SIGKILL)
        assert driver.core.join(10)
        assert time.monotonic() - began < 10
        failure = driver.core.failure
        assert isinstance(failure, StepFailedError)
        assert {"one", "two", "three"} >= set(failure.members)
        assert "rank 1's process was killed by SIGKILL" in str(failure)
