"""Errors as a user reads them: one line that says what to do, and an exit code by the sort of mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from thothy_ai.cli import app
from thothy_ai.cli.inputs.job_options import job_ref
from thothy_ai.db.states import JobState
from thothy_ai.errors import ConfigError, InvalidJobError, NotConnectedError, UnknownJobError

SEE = "(see `thothy {} --help`)"
NO_ID = "a job id, nor 4 or more hexadecimal digits of its beginning or end"
FILTERS = "--state, --kind and --older-than"
DEBUG = "(set THOTHY_LOG_LEVEL=DEBUG for a traceback)"
LIST = SEE.format("jobs list")


def error_of(arguments: list[str], exit_code: int) -> str:
    """The one line of the error."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == exit_code, done.output
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.stderr.removeprefix("thothy: ").rstrip("\n")


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("jobs lisst", f"no such command 'lisst'; did you mean 'list'? {SEE.format('jobs')}"),
        ("queue nonsense", f"no such command 'nonsense'; there are pause, resume, status {SEE.format('queue')}"),
        ("jobs list --staet dead", f"no such option: --staet; did you mean --state? {LIST}"),
        ("jobs list --xyzzy", f"no such option: --xyzzy {LIST}"),
        ("jobs list --state", "option '--state' requires an argument"),
        ("jobs list --limit 0", f"invalid value for '--limit': must be at least 1 {LIST}"),
        ("jobs list more", f"unexpected argument: more {LIST}"),
        ("jobs show", f"missing argument 'ID' {SEE.format('jobs show')}"),
        ("history prune", f"missing option '--older-than' {SEE.format('history prune')}"),
        ("artifacts export", f"missing argument 'TARGET' {SEE.format('artifacts export')}"),
        (
            "jobs list --state foo",
            f"invalid value for '--state': 'foo' is not one of {', '.join(map(repr, map(str, JobState)))} {LIST}",
        ),
        (
            "jobs show xyz",
            f"invalid value for 'ID': 'xyz' is not {NO_ID} {SEE.format('jobs show')}",
        ),
        (
            "jobs cancel",
            f"pass job ids, or filters such as {FILTERS}, or --all alone {SEE.format('jobs cancel')}",
        ),
    ],
)
def test_usage_errors(clean_environment: None, typed: str, message: str) -> None:
    assert error_of(typed.split(), 2) == message


@pytest.mark.parametrize(
    ("error", "exit_code", "message"),
    [
        (UnknownJobError("3d9a4f10"), 1, "no job with id 3d9a4f10"),
        (NotConnectedError("no stack"), 1, "no stack"),
        (ConfigError("THOTHY_X: is wrong"), 2, "THOTHY_X: is wrong"),
        (InvalidJobError("source", "is empty"), 2, "source: is empty"),
        (
            ValueError("two\n  lines"),
            1,
            f"unexpected ValueError: two lines {DEBUG}",
        ),
        (typer.Abort(), 1, "aborted; nothing was changed"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_errors_of_a_command(
    monkeypatch: pytest.MonkeyPatch, clean_environment: None, error: Exception, exit_code: int, message: str
) -> None:
    monkeypatch.setattr("thothy_ai.cli.commands.jobs.database", _raising(error))
    assert error_of(["jobs", "list"], exit_code) == message


def test_ctrl_c_is_silent(monkeypatch: pytest.MonkeyPatch, clean_environment: None) -> None:
    monkeypatch.setattr("thothy_ai.cli.commands.jobs.database", _raising(KeyboardInterrupt()))
    done = CliRunner().invoke(app, ["jobs", "list"])
    assert (done.exit_code, done.output) == (130, "")


def test_a_traceback_when_asked_for(monkeypatch: pytest.MonkeyPatch, clean_environment: None) -> None:
    monkeypatch.setenv("THOTHY_LOG_LEVEL", "DEBUG")
    monkeypatch.setattr("thothy_ai.cli.commands.jobs.database", _raising(ValueError("deep")))
    assert isinstance(CliRunner().invoke(app, ["jobs", "list"]).exception, ValueError)


def test_control_characters_of_an_error_do_not_reach_the_terminal(clean_environment: None) -> None:
    assert "\x1b" not in error_of(["jobs", "list", "--state", "\x1b[2J"], 2)


def test_the_program_has_one_name_however_it_is_started(clean_environment: None) -> None:
    command = [sys.executable, "-m", "thothy_ai.cli", "jobs", "list", "--state", "foo"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith(f"{LIST}\n")


def test_a_reader_that_is_gone_before_the_first_line(clean_environment: None, tmp_path: Path) -> None:
    reads_nothing = f"'{sys.executable}' -m thothy_ai.cli --help 2> {tmp_path}/error | true"
    subprocess.run(["bash", "-c", reads_nothing], check=True)
    assert (tmp_path / "error").read_text() == ""


def test_version(clean_environment: None) -> None:
    code = (
        "import sys\nfrom thothy_ai.cli import app\ntry: app(['--version'])\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'sqlalchemy', 'pydantic', 'celery', 'rich', 'redis'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    version, heavy = done.stdout.splitlines()
    assert version.startswith("thothy 0.")
    assert f"Python {sys.version_info.major}.{sys.version_info.minor}" in version
    assert heavy == "[]"


@pytest.mark.parametrize("text", ["3d9a4f10", " 3D9A4F10 ", "019a9e2b-7c44", "019a9e2b-7c44-7d1e-9a53-0c8b3d9a4f10"])
def test_parts_of_ids(text: str) -> None:
    assert job_ref(text) == text.strip().lower()


def _raising(error: BaseException) -> Any:
    def database() -> None:
        raise error

    return database
