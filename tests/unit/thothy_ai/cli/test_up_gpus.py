"""`thothy up --gpus` and `--engines`, and THOTHY_ENGINE_NULL: what cannot work is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import one_line, type_command
from thothy_ai.engine.process import gpus


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--gpus", "all"), "no NVIDIA GPU found on this machine"),
        (("--gpus", "0,1"), "`--engines 2` runs two of them there"),
        (("--gpus", "banana"), "--gpus: 'banana' is not a GPU; say all, none, or indices"),
        (("--gpus", "0,,1"), "--gpus: '' is not a GPU"),
        (("--gpus", ""), "--gpus: '' is not a GPU"),
        (("--gpus", "-1"), "--gpus: '-1' is not a GPU"),
        (("--gpus", "GPU-3f2a"), "no NVIDIA GPU found on this machine"),
        (("--gpus", "all", "--engines", "2"), "--engines is for engines on the CPU"),
        (("--engines", "2", "--tensor-parallel", "2"), "--tensor-parallel is for GPUs"),
        (("--gpus", "none", "--tensor-parallel", "2"), "--tensor-parallel is for GPUs"),
    ],
)
def test_a_machine_without_gpus(
    arguments: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "all_gpus", tuple)
    monkeypatch.setenv("THOTHY_HOME", str(tmp_path / "home"))
    assert says in one_line(type_command("up", *arguments, exit_code=2))
    assert not (tmp_path / "home").exists()


def test_no_engine_at_all_is_a_usage_error() -> None:
    type_command("up", "--engines", "0", exit_code=2)


def test_a_demo_without_a_model_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("THOTHY_HOME", str(home))
    monkeypatch.setenv("THOTHY_ENGINE_NULL", "On")
    assert one_line(type_command("demo", exit_code=2)).startswith(
        "THOTHY_ENGINE_NULL: the demo needs a model, `thothy up --null` does not: unset it"
    )
    assert not home.exists()


def test_an_engine_with_a_model_and_without_one_is_a_usage_error() -> None:
    assert "--null runs without a model" in one_line(type_command("up", "--null", "--model", "m", exit_code=2))
    refused = one_line(type_command("up", "--null", "--verifier", "no-such-folder", exit_code=2))
    assert "dir 'no-such-folder' does not exist" in refused


def test_the_engine_s_switch_may_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THOTHY_ENGINE_NULL", "off")
    assert one_line(type_command("up", "--model", "/nonexistent", exit_code=2)).startswith("no model at /nonexistent")
