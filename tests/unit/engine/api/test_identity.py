"""An engine's name, and that of its model, where the options do not say them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from thothy_ai.engine.api.identity import identity_of
from thothy_ai.engine.api.options import EngineOptions

HOST = socket.gethostname()


@pytest.mark.parametrize(
    ("visible", "device", "label"),
    [
        (None, "auto", "0"),
        (None, "cpu", "0"),
        (None, "cuda:3", "3"),
        ("1", "cuda", "1"),
        ("4,5", "cuda:1", "5"),
        ("", "cuda", "0"),
        ("GPU-1b2c3d4e-5f", "cuda", "1b2c3d4e"),
    ],
)
def test_the_default_name_is_the_host_s_and_the_gpu_s(
    visible: str | None, device: str, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    identity = identity_of(EngineOptions(url="", device=device))
    assert (identity.name, identity.machine, identity.registered) == (f"{HOST}-{label}", HOST, False)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("/models/Qwen2.5-7B", "Qwen2.5-7B"),
        ("/models/Qwen2.5-7B/", "Qwen2.5-7B"),
        ("/models/a/../b", "b"),
        ("SmolLM2.Q4_1.gguf", "SmolLM2.Q4_1"),
        (".", Path.cwd().name),
    ],
)
def test_the_model_s_name_is_that_of_its_folder_or_file(model: str, name: str) -> None:
    assert identity_of(EngineOptions(url="", model=Path(model))).model_name == name


def test_what_is_given_counts() -> None:
    identity = identity_of(EngineOptions(url="", name="box", model_name="tiny", session_id="1"))
    assert (identity.name, identity.model_name, identity.registered) == ("box", "tiny", True)
