"""Every command has help with an example, help imports little, and usage errors say what to do."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import typer
from typer.main import get_command, get_group
from typer.testing import CliRunner

from thothy_ai.cli import app, commands
from thothy_ai.cli.commands import summary_of
from thothy_ai.jobs import registry

EXPECTED = {
    "up", "demo", "enqueue", "jobs list", "jobs show", "jobs retry", "jobs cancel", "artifacts list", "artifacts show",
    "artifacts export", "drain", "report", "queue pause", "queue resume", "queue status", "migrate", "doctor", "engine",
    "worker", "dispatcher", "reaper", "dead list", "dead show", "dead redrive", "dead purge", "history prune", "chaos",
    "completion", "logs", "ask", "jobs watch", "top", "adapters load", "adapters unload", "adapters list",
}  # fmt: skip


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all commands; a group's too when it does something itself."""
    names = command.list_commands(None) if hasattr(command, "list_commands") else []
    if not names or getattr(command, "invoke_without_command", False):
        yield path
    for name in names:
        yield from walk(command.get_command(None, name), (*path, name))


COMMANDS = list(walk(get_command(app)))
KINDS = tuple(registry.names())  # of the same moment: other tests load kinds of their own


def test_every_promised_command_is_there() -> None:
    assert {" ".join(path) for path in COMMANDS} >= EXPECTED | {f"enqueue {kind}" for kind in KINDS}


@pytest.mark.parametrize("path", [(), ("report",), ("jobs",), ("models",)], ids=" ".join)
def test_lists_of_commands_have_whole_sentences(path: tuple[str, ...], clean_environment: None) -> None:
    shown = CliRunner().invoke(app, [*path, "--help"]).output.partition("Commands:")[2]
    assert "..." not in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_an_example_that_names_the_command(path: tuple[str, ...], clean_environment: None) -> None:
    done = CliRunner().invoke(app, [*path, "--help"])
    assert done.exit_code == 0, done.output
    assert f"Example: {' '.join(('thothy', *path))}" in " ".join(done.output.split()).replace(
        "THOTHY_WORKER_IN_FLIGHT=256 ", ""
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "nonsense"),
        (["jobs", "show", "not-an-id"], "is not a job id"),
        (["jobs", "list", "--state", "finished"], "finished"),
        (["jobs", "list", "--since", "yesterday"], "2026-11-21T06:00"),
        (["jobs", "retry"], "pass either job ids or --state"),
        (["jobs", "cancel"], "pass job ids, or filters"),
        (["dead", "redrive"], "or pass --all alone"),
        (["dead", "purge", "--all", "--kind", "hook"], "or pass --all alone"),
        (["dead", "list", "--until", "1d", "--older-than", "1d"], "pass only one of them"),
        (["enqueue", "poem"], "poem"),
        (["enqueue", "hook", "--source", "x", "--priority", "101"], "'--priority': must be at most 100 ("),
        (["enqueue", "hook", "--source", "x", "--priority", "high"], "'--priority': must be a whole number ("),
        (["jobs", "list", "--limit", "0"], "'--limit': must be at least 1 ("),
        (["up", "--model", "/nowhere/at/all"], "no model at /nowhere/at/all"),
        (["enqueue", "hook", "--source", "x", "--source-file", "y"], "mutually exclusive"),
        (["enqueue", "hook", "--source-file", "/nowhere/at/all"], "No such file"),
        (["enqueue", "hook", "--chanel", "video"], "no such option: --chanel; did you mean --channel? (see"),
        (["enqueue", "hook", "notes.txt"], "thothy: unexpected argument: notes.txt (see"),
        (["jobs", "list", "--limit", "99999999999999999999"], "'--limit': must be at most 1000000 ("),
        (["jobs", "list", "--since", "1h", "--until", "2h"], "must be later than --since"),
        (["queue", "pause", "--note", "x" * 1000], "--note has 1,000 characters; the limit is 500"),
        (["dead", "redrive", "--all", "--why", "x" * 1000], "--why has 1,000 characters; the limit is 500"),
        (["queue", "pause", "--kind", "hook", "--tenant", "t"], "--kind and --tenant are mutually exclusive"),
        (["queue", "resume", "--model", "m", "--engine", "e"], "--model and --engine are mutually exclusive"),
        (["queue", "pause", "--tenant", " "], "--tenant is not a name: ' '"),
        (["queue", "pause", "--model", "x" * 1000], "--model has 1,000 characters; the limit is 500"),
        (["artifacts", "export", "out.pdf"], "cannot tell a format from out.pdf"),
        (["doctor", "--only", "teeth"], "teeth"),
        (["engine", "--null", "--model", "/x"], "without a model"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_usage_errors_exit_2(arguments: list[str], words: str, clean_environment: None) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2, done.output
    assert words in " ".join(done.output.split())
    for leak in ("Traceback", "Input should", "Value error", "invalid value: "):
        assert leak not in done.output


def test_the_list_of_commands_says_what_each_command_s_help_says() -> None:
    command: Any = get_command(app)
    for name in command.list_commands(None):
        assert summary_of(name) == command.get_command(None, name).short_help


def test_every_command_of_every_module_is_in_the_list() -> None:
    root = typer.Typer()
    for found in pkgutil.iter_modules(commands.__path__):
        module = import_module(f"{commands.__name__}.{found.name}")
        if hasattr(module, "app"):
            root.add_typer(module.app)
    assert set(get_group(root).commands) == set(get_group(app).commands)


def test_help_imports_neither_commands_nor_anything_heavy() -> None:
    code = (
        "import sys\n"
        "from thothy_ai.cli import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'sqlalchemy', 'pydantic', 'celery', 'rich', 'redis', 'transformers', 'asyncio', 'msgspec'}\n"
        "print(sorted(name for name in sys.modules if name in heavy or name.startswith('thothy_ai.cli.commands.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_without_settings_a_command_says_which_one_is_missing(
    clean_environment: None, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THOTHY_HOME", str(tmp_path))
    done = CliRunner().invoke(app, ["jobs", "list"])
    assert done.exit_code == 1
    assert "THOTHY_DATABASE_URL is not set; `thothy up` starts a stack" in done.stderr
    assert len(done.stderr.splitlines()) == 1
