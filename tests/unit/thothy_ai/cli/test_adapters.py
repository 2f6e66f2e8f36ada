"""Adapters that `thothy up` and `thothy engine` refuse before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from thothy_ai.cli import app


@pytest.mark.parametrize("command", [["up", "--null"], ["engine", "--null", "--url", "unix:///nowhere.sock"]])
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["acme={folder}/missing"], "acme: no folder at"),
        (["{folder}"], "expected NAME=FOLDER"),
        (["two words={folder}"], "cannot be an adapter's name"),
        (["acme={folder}", "acme={folder}"], "two adapters are named 'acme'"),
        (["resident={folder}"], "resident is the name of the model"),
    ],
)
def test_what_cannot_be_an_adapter_is_a_usage_error(
    command: list[str],
    given: list[str],
    says: str,
    tmp_path: Path,
    clean_environment: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("THOTHY_HOME", str(tmp_path))
    monkeypatch.setenv("THOTHY_MODEL_NAME", "resident")
    adapters = [part for each in given for part in ("--adapter", each.format(folder=tmp_path))]
    done = CliRunner().invoke(app, [*command, *adapters])
    assert (done.exit_code, done.stdout) == (2, "")
    assert says in done.stderr


def test_a_server_over_http_has_its_own_adapters(
    tmp_path: Path, clean_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THOTHY_HOME", str(tmp_path))
    monkeypatch.setenv("THOTHY_ENGINE_URL", "https://gpu.example/v1")
    done = CliRunner().invoke(app, ["up", "--adapter", f"acme={tmp_path}"])
    assert done.exit_code == 2
    assert "https://gpu.example/v1, which loads its adapters itself: leave out --adapter" in done.stderr
