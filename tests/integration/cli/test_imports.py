"""What commands import: each starts a process, and a shell's user waits for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.command_line import environment_of
from thothy_ai.settings import Settings

HEAVY = {
    "torch", "numpy", "transformers", "tokenizers", "jinja2", "celery", "kombu", "redis", "alembic", "sqlalchemy.orm",
    "sqlalchemy.ext.asyncio", "prometheus_client", "markdown_it", "lingua", "icu", "matplotlib",
    "rich.console", "thothy_ai.db.models", "thothy_ai.jobs.checks", "thothy_ai.producer", "thothy_ai.engine",
}  # fmt: skip
RUN = """
import sys
from thothy_ai.cli import app
try: app(sys.argv[1:])
except SystemExit as ended: assert not ended.code, ended.code
print(*sys.modules)
"""


@pytest.mark.parametrize(
    "command",
    [("jobs", "list"), ("artifacts", "list"), ("dead", "list"), ("webhooks", "list")],
    ids=" ".join,
)
def test_a_list_imports_nothing_that_it_does_not_need(command: tuple[str, ...], settings: Settings) -> None:
    call = [sys.executable, "-c", RUN, *command]
    done = subprocess.run(call, env=environment_of(settings), capture_output=True, text=True, check=True)
    imported = set(done.stdout.splitlines()[-1].split())
    assert "thothy_ai.cli" in imported
    assert imported & HEAVY == set()
