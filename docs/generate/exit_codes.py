"""`exit-codes.md`: the exit codes of every command, with examples that are run while the page is written."""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

from typer.testing import CliRunner

from docs.generate.markdown import code, page, table
from thothy_ai.cli import app
from thothy_ai.cli.shell import FAILED, INTERRUPTED, UNSERVED, WRONG_INPUT
from thothy_ai.engine.process.main import CANNOT_START, STEP_FAILED
from thothy_ai.settings import PREFIX

MEANINGS = {
    0: "The command succeeded.",
    FAILED: "It failed, or the answer is no: a check fails, jobs are still open, nothing has that id.",
    WRONG_INPUT: "What was typed or set is wrong: an option, an id, a kind, a field of a request, a line of a JSONL"
    " file, a setting. Nothing was changed.",
    UNSERVED: "Only of `thothy drain`: jobs are left, and each names a model that no engine serves.",
    INTERRUPTED: "Ctrl-C cut it short. `thothy up` ends with 0 after Ctrl-C: that is how it is stopped.",
}
# Run without a stack, in an empty folder.
EXAMPLES = (
    "thothy jobs list --help",
    "thothy jobs list",
    "thothy doctor --only postgres",
    "thothy jobs list --state finished",
    "thothy jobs show xyz",
    "thothy enqueue hook --source-file missing.txt",
    'thothy enqueue hook --source "Crocks are back." --channel radio',
    "THOTHY_LEASE_SECONDS=soon thothy jobs list",
)
NO = (
    ("thothy ask trend_summary --source-file notes.txt", "The validators reject the output."),
    ("thothy jobs watch 3d9a4f10", "The job ended without an artifact."),
    ("thothy doctor", "A check fails."),
    ("thothy drain --timeout 10m", "Jobs are still open when the time is up."),
    ("thothy queue pause --wait --timeout 600", "Jobs are still running when the time is up; the queue stays paused."),
    ("thothy report check", "A session's attributed seconds differ from its busy ones."),
    ("thothy eval hook --injections", "An output obeys an instruction that is hidden in its source."),
    ("thothy models check ./model", "The model will not load; the reasons are among what it prints."),
    ("thothy chaos", "An invariant was violated, or not every fault could be injected."),
)


def exit_codes_page() -> str:
    """The page."""
    return page(
        "Exit codes",
        "What the exit code of a command means; an error is also one line on standard error that begins with"
        " `thothy:` and says what to do.",
        table(("Code", "Meaning"), ((str(number), meaning) for number, meaning in sorted(MEANINGS.items()))),
        "These answer a question with their exit code:",
        table(("Command", "1 means"), ((code(command), meaning) for command, meaning in NO)),
        f"`thothy engine` exits with {CANNOT_START} when it cannot start, and with {STEP_FAILED} when a step failed or"
        " hangs: the state of the device cannot be trusted\nthen, and a supervisor starts a new process.",
        "## Examples",
        "In a folder without a running stack:",
        table(("Command", "Code", "Standard error"), map(_example, EXAMPLES)),
    )


def _example(line: str) -> tuple[str, str, str]:
    with empty_folder():
        code_, stderr = run(line)
    return code(line), str(code_), code(stderr.strip()) if stderr.strip() else "-"


def run(line: str) -> tuple[int, str]:
    """Run a command line: its exit code, and what it says on standard error."""
    words = shlex.split(line)
    at = words.index("thothy")
    environment = dict(word.split("=", 1) for word in words[:at])
    done = CliRunner().invoke(app, words[at + 1 :], env=environment)
    return done.exit_code, done.stderr


@contextlib.contextmanager
def empty_folder() -> Iterator[None]:
    """An empty working folder and no settings, so that the pages are the same everywhere."""
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(PREFIX)}
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(Path(folder)):
            yield
    finally:
        os.environ |= kept
