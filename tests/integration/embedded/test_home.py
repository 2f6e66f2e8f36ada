"""Homes that a stack cannot use: one line that names the real cause, typed as a user types it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from tests.support.home import THOTHY, Home, fresh_home, processes_of
from tests.support.patience import PATIENCE
from thothy_ai.cli import app
from thothy_ai.embedded import EmbeddedStack
from thothy_ai.settings import Settings

pytestmark = pytest.mark.usefixtures("clean_environment")

UNWRITABLE = "/sys/thothy"  # not even root can make it
FILE_BLOCKS = 4000  # of 512 bytes or a kilobyte: less than a file of Postgres' log, more than everything before it


@pytest.fixture
def home() -> Iterator[Home]:
    with fresh_home() as home:
        yield home


def refusal(monkeypatch: pytest.MonkeyPatch, command: str, folder: str) -> str:
    """The one line that the command says."""
    monkeypatch.setenv("THOTHY_HOME", folder)
    done = CliRunner().invoke(app, [command])
    assert done.exit_code not in (0, 130)
    [line] = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("command", ["up", "demo"])
@pytest.mark.parametrize("below", ["", "/folder/in/it"])
def test_a_file(home: Home, monkeypatch: pytest.MonkeyPatch, command: str, below: str) -> None:
    file = home.folder / "file"
    file.touch()
    line = refusal(monkeypatch, command, f"{file}{below}")
    assert line.startswith(f"thothy: the home {file}{below}")
    assert line.endswith(f"cannot be used: {file} is a file; set THOTHY_HOME to a folder")


def test_a_folder_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    line = refusal(monkeypatch, "up", UNWRITABLE)
    assert line.startswith(f"thothy: the home {UNWRITABLE} cannot be used: {UNWRITABLE}: ")
    assert "Errno" not in line


def test_a_disk_without_room_for_postgres_and_the_same_home_once_there_is(home: Home) -> None:
    limited = f"ulimit -f {FILE_BLOCKS}; exec {' '.join(THOTHY)} up"
    done = subprocess.run(
        ["sh", "-c", limited], env=home.environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(f"thothy: postgres: initdb failed in {home.folder / 'postgres'}: could not write to file")
    assert line.endswith(": File too large")
    assert processes_of(home) == []
    with EmbeddedStack(Settings.load(home=home.folder), services=()) as stack:
        assert stack.postgres.answers()


def test_a_stack_env_that_is_garbage(home: Home) -> None:
    (home.folder / "stack.env").write_text("what is this\n")
    done = home.run("jobs", "list")
    assert done.returncode != 0
    [line] = done.stderr.splitlines()
    cause = "line 1 is not NAME=value: remove the file, and start the stack again"
    assert line.endswith(f"{home.folder / 'stack.env'}, {cause}")
