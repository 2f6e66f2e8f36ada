"""`thothy up --gpus` and `--engines`: what this machine cannot do is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import one_line, type_command
from thothy_ai.engine import gpus


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--gpus", "all"), "no NVIDIA GPU found on this machine"),
        (("--gpus", "0,1"), "`--engines 2` runs two of them there"),
        (("--gpus", "banana"), "--gpus: 'banana' is no GPU; say all, none, or indices"),
        (("--gpus", "0,,1"), "--gpus: '' is no GPU"),
        (("--gpus", ""), "--gpus: '' is no GPU"),
        (("--gpus", "-1"), "--gpus: '-1' is no GPU"),
        (("--gpus", "GPU-3f2a"), "no NVIDIA GPU found on this machine"),
        (("--gpus", "all", "--engines", "2"), "--engines is for engines on the CPU"),
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
