"""`thothy` commands as they are typed, with a test's own settings."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

from typer.testing import CliRunner, Result

from tests.support.home import THOTHY
from thothy_ai.cli import app
from thothy_ai.settings import PREFIX, Settings


def environment_of(settings: Settings) -> dict[str, str]:
    """The environment of a command that uses this test's services, without the variables of who runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return {**kept, **settings.environment()}


def typed(settings: Settings, *arguments: str, exit_code: int = 0) -> Result:
    """Run `thothy` in this process, and check its exit code."""
    done = CliRunner().invoke(app, list(arguments), env=settings.environment())
    assert done.exit_code == exit_code, done.output
    assert "Traceback" not in done.output
    return done


def error_line(done: Result) -> str:
    """The one line on standard error."""
    (line,) = done.stderr.splitlines()
    return line


def spawned(environment: Mapping[str, str], *arguments: str) -> subprocess.Popen[str]:
    """Start `thothy` with pipes for its standard output and error."""
    return subprocess.Popen(
        [*THOTHY, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
