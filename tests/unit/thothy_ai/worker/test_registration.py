"""An engine that loads is registered with the GPUs that it is going to use, by which its seconds are billed."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.process.gpus import Gpu

registered = import_module("thothy_ai.worker.registration.registered")  # a function has its name in the package
GPUS = tuple(Gpu(index, f"GPU-{index}", "H100") for index in range(4))


@pytest.mark.parametrize(
    ("device", "ranks", "devices"),
    [("auto", 1, ("GPU-0",)), ("auto", 2, ("GPU-0", "GPU-1")), ("cuda:2", 2, ("GPU-2", "GPU-3")), ("cpu", 2, ())],
)
def test_all_gpus_of_an_engine_are_registered(
    device: str, ranks: int, devices: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(registered, "all_gpus", lambda: GPUS)
    options = EngineOptions(url="", model=Path("model"), device=device, tensor_parallel=ranks)
    assert registered._registration(options).devices == devices
