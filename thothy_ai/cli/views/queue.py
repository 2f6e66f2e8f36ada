"""The state of the queue: its table, and sentences on what keeps it from draining and what to type."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import typer

from thothy_ai.admin.durations import spell
from thothy_ai.cli.views import times
from thothy_ai.cli.views.tables import Column, count, print_text, printable, table

if TYPE_CHECKING:
    from thothy_ai.admin.drain import Obstacles
    from thothy_ai.queue.pauses import Pause
    from thothy_ai.queue.status import QueueStatus


def print_states(now: QueueStatus) -> None:
    """Print open jobs by state, jobs that no engine can run, and expired leases."""
    numbers = ("jobs", "oldest waits", "delayed", "deadline < 1 h", "deadline < 24 h")
    heads = [Column("state"), *(Column(head, number=True) for head in numbers)]
    rows = [
        [name, f"{at.jobs:,}", spell(at.due_age), f"{at.delayed:,}", f"{at.due_1h:,}", f"{at.due_24h:,}"]
        for name, at in ((name, now[name]) for name in ("queued", "dispatched", "running"))
    ]
    table("", heads, rows)
    for name, jobs in now.unserved.items():
        print_text(f"{waiting_for(jobs, name, now.unserved_aliases.get(name))}.")
    if others := now.unserved_others:
        typer.echo(f"{waiting_for(others)}.")
    if expired := now["running"].expired_leases:
        typer.echo(f"{count(expired, 'lease')} expired. `thothy doctor --only queue` says why.")


def obstacle_sentences(seen: Obstacles) -> Iterator[str]:
    """Sentences on what keeps the queue from draining, and what to type."""
    if seen.pause is not None:
        since = paused_since(seen.pause.changed_at, seen.pause.note)
        yield f"The queue has been {since}. `thothy queue resume` resumes it."
    yield from map(pause_sentence, seen.pauses)
    if seen.missing:
        yield f"No {' or '.join(seen.missing)} is connected. `thothy doctor` says what to do."
    else:
        yield from unserved_sentences(seen)


def unserved_sentences(seen: Obstacles) -> Iterator[str]:
    """Sentences on jobs that wait for a model that no engine serves, and what to do."""
    aliases = seen.unserved.aliases
    for name, jobs in seen.unserved.jobs.items():
        another = f"let another run them: `thothy models alias {name} MODEL`"
        fix = f"start an engine with {aliases.get(name, 'it')}, or {another}"
        yield f"{waiting_for(jobs, name, aliases.get(name))}: {fix}."
    if seen.unserved.others:
        yield f"{waiting_for(seen.unserved.others)}."


def waiting_for(jobs: int, name: str | None = None, alias_of: str | None = None) -> str:
    """A clause on jobs whose model no engine serves. Without `name`, it is about models not named before."""
    wait = f"{count(jobs, 'job')} {'waits' if jobs == 1 else 'wait'} for"
    if name is None:
        return f"{wait} other models that no engine serves"
    return f"{wait} {name}, {f'an alias of {alias_of}, ' if alias_of else ''}which no engine serves"


def pause_sentence(pause: Pause) -> str:
    """A sentence on what is paused, and what to type."""
    name, command = printable(pause.name), printable(pause.resume_command)
    return f"The {pause.scope} {name} has been {part_paused_since(pause)}. `{command}` resumes it."


def part_paused_since(pause: Pause) -> str:
    return paused_since(pause.paused_at, pause.note, by=pause.paused_by)


def paused_since(since: datetime | None, note: str | None, *, by: str | None = None) -> str:
    who = f" by {printable(by)}" if by else ""
    return f"paused since {times.local(since)}{who}" + (f" ({printable(note)})" if note else "")
