"""Shell completion: the protocol, as the shells speak it, and the real shells where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine

from tests.support.command_line import Run, end, enqueue

# `thothy`, except that it waits for the database as long as it takes; once for each line of words.
COMPLETING = """
import os, sys
import thothy_ai.jobs, thothy_ai.producer  # what most of them import
from thothy_ai.cli import main
from thothy_ai.cli.inputs import completion
completion.SECONDS = 60.0
for line in sys.stdin.read().splitlines():
    if not (child := os.fork()):
        os.environ |= {"_THOTHY_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        main()
    assert os.waitpid(child, 0)[1] == 0
    print("end", flush=True)
"""


def completions(*asked: Sequence[str]) -> list[list[str]]:
    """What Bash would offer for the last word of each of these."""
    lines = "\n".join(" ".join(("thothy", *words)) for words in asked)
    call = [sys.executable, "-c", COMPLETING]
    done = subprocess.run(call, input=lines, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    *offered, rest = done.stdout.split("end\n")
    assert not rest
    return [each.split() for each in offered]


@pytest.fixture
def job(run: Run, engine: Engine) -> UUID:
    job_id = enqueue(run)
    end(engine, job_id, "dead", reason="engine_error")
    return job_id


def test_commands_options_kinds_states_verdicts_reasons_and_ids(job: UUID) -> None:
    short = str(job)[-8:]
    offered = {
        ("jo",): ["jobs"],
        ("jobs", "c"): ["change", "cancel"],
        ("jobs", "list", "--pa"): ["--parent"],
        ("jobs", "list", "--state", "di"): ["dispatched"],
        ("jobs", "list", "--kind", "tr"): ["translation", "trend_summary"],
        ("artifacts", "list", "--verdict", "acc"): ["accepted"],
        ("dead", "list", "--reason", "engine"): ["engine_error"],
        ("dead", "list", "--reason", "off_s"): ["off_schema"],
        ("jobs", "show", short[:6]): [short],
        ("jobs", "show", ""): [short],
        ("artifacts", "show", str(job)[:9]): [str(job)],
        ("jobs", "list", "--batch", short[:7]): [short],
        ("completion", ""): ["bash", "zsh", "fish"],
        ("enqueue", "tren"): ["trend_summary"],
    }
    assert dict(zip(offered, completions(*offered), strict=True)) == offered


@pytest.mark.parametrize("url", [None, "postgresql://u:p@127.0.0.1:9/db", "nonsense"])
def test_without_a_database_it_is_silent(
    clean_environment: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str | None
) -> None:
    monkeypatch.setenv("THOTHY_HOME", str(tmp_path))
    if url:
        monkeypatch.setenv("THOTHY_DATABASE_URL", url)
    assert completions(("jobs", "show", ""), ("jobs", "list", "--kind", "hoo")) == [[], ["hook"]]


BASH = """
eval "$(thothy completion bash)"
COMP_WORDS=(thothy jobs list --state ca) COMP_CWORD=4
_thothy_completion thothy
echo "${COMPREPLY[@]}"
complete -p thothy
"""
ZSH = """
autoload -Uz compinit && compinit -u -d "$HOME/dump"
eval "$(thothy completion zsh)"
_arguments() { print -- "$@" }
words=(thothy jobs list --state ca) CURRENT=5
_thothy_completion
print -- $_comps[thothy]
"""
FISH = """
thothy completion fish | source
complete --do-complete "thothy jobs list --state ca"
complete --command thothy
"""


@pytest.mark.parametrize(
    ("shell", "options", "script"),
    [("bash", ["--norc"], BASH), ("zsh", ["-f"], ZSH), ("fish", ["--no-config"], FISH)],
    ids=["bash", "zsh", "fish"],
)
def test_in_the_shell_itself(run: Run, tmp_path: Path, shell: str, options: list[str], script: str) -> None:
    program = shutil.which(shell)
    if program is None and shell != "bash":
        pytest.skip(f"{shell} is not installed")
    assert program is not None
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path)}
    done = subprocess.run(
        [program, *options, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert "cancelled" in done.stdout.splitlines()[0]
    assert "thothy" in done.stdout.splitlines()[-1]
