"""`thothy completion`: the script that makes a shell complete commands; and what options and arguments complete to.

The shell runs `thothy` with what was typed so far in environment variables. Whatever fails then completes to
nothing, and so does a database that does not answer soon: a shell that waits for its prompt is no place for messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import StrEnum
from functools import wraps
from typing import Annotated

import typer

from thothy_ai.bench.alarm import alarm
from thothy_ai.cli.shell import COMPLETE_VARIABLE, PROGRAM, database, load_settings
from thothy_ai.cli.views.tables import count, short_id

SECONDS = 2.0  # to complete from the database, once it is known how to ask it
RECENT_JOBS = 500  # that an id is completed from
Choice = tuple[str, str]  # a value, and what it is
app = typer.Typer()


class Shell(StrEnum):
    """The shells that there is a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command()
def completion(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.", show_default=False)],
) -> None:
    """Print the script that completes commands, options, kinds, states, reasons and job ids.

    Bash: put `eval "$(thothy completion bash)"` into ~/.bashrc.

    Zsh: put `eval "$(thothy completion zsh)"` into ~/.zshrc, after compinit.

    Fish: `thothy completion fish > ~/.config/fish/completions/thothy.fish`.

    Example: thothy completion bash
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined] # public, though not marked so

    typer.echo(get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, shell=shell.value))


def _quietly(choices: Callable[[str], Iterator[Choice]]) -> Callable[[str], list[Choice]]:
    @wraps(choices)
    def complete(incomplete: str) -> list[Choice]:
        with suppress(Exception):
            return list(choices(incomplete))
        return []

    return complete


@_quietly
def kinds(incomplete: str) -> Iterator[Choice]:
    """The names of all kinds."""
    from thothy_ai.jobs import registry
    from thothy_ai.producer.drafts import load_kinds

    with suppress(Exception):
        load_kinds(load_settings())
    for name in registry.names():
        if name.startswith(incomplete):
            yield name, (registry.find(name).request.__doc__ or "").strip().partition("\n")[0]


@_quietly
def job_ids(incomplete: str) -> Iterator[Choice]:
    """The newest jobs: short ids, or whole ones where the beginning of one was typed."""
    from thothy_ai.admin.ids import recent

    with alarm(SECONDS, TimeoutError), database() as engine:
        jobs = recent(engine, RECENT_JOBS)
    typed = incomplete.lower()
    for job in jobs:
        for shown in (short_id(job.id), str(job.id)):
            if shown.startswith(typed) and (typed or shown != str(job.id)):
                yield shown, f"{job.kind}, {job.state}"


@_quietly
def reasons(incomplete: str) -> Iterator[Choice]:
    """The reasons for which jobs are dead, and those for which validators reject an output."""
    from thothy_ai.jobs import RejectionReason

    found = dict.fromkeys(RejectionReason, "an output was rejected") | _dead_reasons()
    yield from ((str(reason), why) for reason, why in sorted(found.items()) if reason.startswith(incomplete))


def _dead_reasons() -> dict[str, str]:
    from thothy_ai.admin.dead_letters import groups

    with suppress(Exception), alarm(SECONDS, TimeoutError), database() as engine:
        return {group.reason: f"{count(group.jobs, 'dead job')}" for group in groups(engine)}
    return {}
