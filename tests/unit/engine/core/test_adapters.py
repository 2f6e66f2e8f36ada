"""Loading adapters while a core runs: whatever goes wrong, whoever waits is answered, and the engine goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.adapter_oracle import adaptable
from tests.support.engine_driver import EngineDriver
from tests.support.loading import load_model
from tests.support.oracle import ROOMY
from tests.support.patience import PATIENCE
from tests.support.peft_folders import adapter_tensors, write_adapter
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api import FinishReason, SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.errors import AdapterLoadError, EngineStoppedError
from thothy_ai.engine.core import adapters as core_adapters
from thothy_ai.engine.execution.runner import Runner
from thothy_ai.engine.models.layers.adapted import AdapterBank
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel

ASKED = SamplingParams(max_tokens=3, ignore_eos=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[LoadedModel, Path]:
    folder = tiny_model("llama", tmp_path_factory.mktemp("model"))
    adapter = write_adapter(tmp_path_factory.mktemp("one"), adapter_tensors(adaptable(folder), 4), 4)
    return load_model(folder, device=torch.device("cpu"), dtype=torch.float32), adapter


@pytest.fixture
def driver(made: tuple[LoadedModel, Path]) -> EngineDriver:
    made[0].model.adapters.release()
    return EngineDriver(lambda on_events: build_core(made[0], ROOMY, on_events))


def answers(driver: EngineDriver, id_: str, adapter: str = "") -> bool:
    """Whether a request gets its tokens."""
    driver.submit(CoreRequest(id_, (5, 6, 7), ASKED, adapter=adapter))
    while id_ not in driver.collected.finished:
        driver.gather()
    return driver.collected.finished[id_].reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "fewer --adapter-slots, such as 4"),
        (RuntimeError("a kernel does not compile"), "a kernel does not compile"),
        (ValueError("odd"), "odd"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_room_fails_the_adapter_and_leaves_all_as_it_was(
    error: Exception, says: str, driver: EngineDriver, made: tuple[LoadedModel, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    bank, runner = made[0].model.adapters, driver.core._runner
    assert isinstance(runner, Runner)
    allocate = AdapterBank.allocate

    def half(self: AdapterBank, *sizes: Any) -> None:
        allocate(self, *sizes)
        self.begin(3)  # as while steps are warmed up, and after the first graphs
        runner._decode.adapted._sizes, runner._mixed_adapted._captured = [1, 2], {8: runner}
        raise error

    with driver, monkeypatch.context() as failing:
        failing.setattr(AdapterBank, "allocate", half)
        driver.core.start()
        with pytest.raises(AdapterLoadError, match=says):
            driver.core.load_adapter("one", str(made[1])).result(PATIENCE)
        assert (bank.slots, bank.tokens, bank._pool.numel()) == (0, None, 0)
        assert runner._decode.adapted.size_for(1) is None
        assert not runner._mixed_adapted._captured
        assert answers(driver, "a")
        failing.undo()
        assert driver.core.load_adapter("one", str(made[1])).result(PATIENCE).name == "one"
        assert answers(driver, "b", "one")


def stopped(driver: EngineDriver) -> None:
    driver.core.stop()


def given_up(driver: EngineDriver) -> None:
    driver.core.give_up(RuntimeError("the device does not answer"))


@pytest.mark.parametrize("end", [stopped, given_up])
def test_all_that_wait_are_answered_when_the_core_ends(
    end: Callable[[EngineDriver], None], driver: EngineDriver, made: tuple[LoadedModel, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    reading, go_on, read = threading.Event(), threading.Event(), core_adapters.read_adapter

    def slow(*given: Any) -> Any:
        reading.set()
        assert go_on.wait(PATIENCE)
        return read(*given)

    monkeypatch.setattr(core_adapters, "read_adapter", slow)
    with driver:
        driver.core.start()
        loads: list[Future[Any]] = [driver.core.load_adapter(name, str(made[1])) for name in ("one", "two", "three")]
        assert reading.wait(PATIENCE)
        assert not loads[0].cancel()  # whoever gives up does not take the answer from the core
        end(driver)
        assert driver.core.join(PATIENCE)
        for load in loads:
            with pytest.raises(EngineStoppedError):
                load.result(PATIENCE)
        go_on.set()
        with pytest.raises(EngineStoppedError):
            driver.core.load_adapter("late", str(made[1])).result(0)
