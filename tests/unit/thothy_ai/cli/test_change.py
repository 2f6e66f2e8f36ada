"""`thothy jobs change` refuses what it cannot mean before it looks for a database."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from thothy_ai.cli.commands.jobs import app


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["abcd1234"], "pass what to change"),
        (["--priority", "5"], "pass job ids, or filters"),
        (["abcd1234", "--kind", "hook", "--priority", "5"], "pass job ids, or filters"),
        (["--all", "--kind", "hook", "--priority", "5"], "pass job ids, or filters"),
        (["abcd1234", "--deadline", "2h", "--no-deadline"], "mutually exclusive"),
        (["abcd1234", "--not-before", "2h", "--no-not-before"], "mutually exclusive"),
        (["abcd1234", "--priority", "101"], "100"),
        (["abcd1234", "--deadline", "soon"], "soon"),
        (["--state", "running", "--priority", "5"], "running"),
    ],
)
def test_bad_input(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["change", *arguments])
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())
