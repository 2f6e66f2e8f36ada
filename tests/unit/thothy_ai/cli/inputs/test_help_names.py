"""`--help` names values as the reference does: `N`, `TEXT` or the choices."""

from __future__ import annotations

import re

import pytest
from typer import Context
from typer.testing import CliRunner

from docs.generate.commands import commands
from thothy_ai.cli import app
from thothy_ai.cli.inputs.help_names import value_name

TYPE = re.compile(r"<(?:int|float|str|path|list\[)")


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("<int range>", "N"), ("<float>", "NUMBER"), ("<list[str]>", "TEXT"), ("<path>", "PATH"), ("FILE", "FILE"),
        ("<list[queued|dead]>", "queued|dead"),
    ],
)  # fmt: skip
def test_names_of_values(label: str, name: str) -> None:
    assert value_name(label) == name


def test_no_command_shows_a_type_of_python() -> None:
    shown = {name: command.get_help(Context(command, info_name=name)) for name, command in commands()}
    assert len(shown) > 50
    assert {name for name, text in shown.items() if TYPE.search(text)} == set()


@pytest.mark.parametrize("words", [("jobs", "list"), ("enqueue", "hook"), ("ask", "hook")])
def test_commands_of_kinds_do_too(words: tuple[str, ...]) -> None:
    text = CliRunner().invoke(app, [*words, "--help"]).output
    assert TYPE.search(text) is None
    assert " N " in text
