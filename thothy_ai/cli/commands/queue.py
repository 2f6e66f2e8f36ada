"""`thothy queue`: pause, resume, status."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import timedelta
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.inputs import completion, times
from thothy_ai.cli.inputs.job_options import check_engine, check_kinds
from thothy_ai.cli.shell import INTERRUPTED, AsJson, check_note, database, fail, operator, usage
from thothy_ai.cli.views.queue import part_paused_since, pause_sentence, paused_since, print_states
from thothy_ai.cli.views.tables import count, print_json, print_text, printable

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from thothy_ai.queue.pauses import Scope

    Part = tuple[Scope, str]

app = typer.Typer(name="queue", no_args_is_help=True, help="Pause, resume and inspect the queue.")

OfKind = Annotated[str | None, typer.Option("--kind", autocompletion=completion.kinds, help="Only jobs of this kind.")]
OfTenant = Annotated[str | None, typer.Option("--tenant", help="Only jobs of this tenant.")]
OfModel = Annotated[str | None, typer.Option("--model", help="Only jobs that name this model, adapter or alias.")]
OfEngine = Annotated[str | None, typer.Option("--engine", help="Only this engine: it runs what it has.")]


@app.command()
def pause(
    kind: OfKind = None,
    tenant: OfTenant = None,
    model: OfModel = None,
    engine_name: OfEngine = None,
    note: Annotated[str | None, typer.Option(help="Reason, shown by `thothy queue status`.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Take dispatched jobs back and wait until no job is running.")
    ] = False,
    timeout: Annotated[
        timedelta | None,
        typer.Option(
            parser=times.limit,
            metavar="DURATION",
            help="With --wait: maximum time to wait for running jobs, 10m, or 600 for seconds. Default: no limit.",
        ),
    ] = None,
) -> None:
    """Stop dispatching. Jobs that are dispatched or running finish; producers can still enqueue.

    With --wait, dispatched jobs that no worker has claimed go back to the queue, and the command ends when no
    job is running. One of --kind, --tenant, --model and --engine pauses only that part of the queue, and --wait then
    takes back and waits for its jobs alone. Jobs that name an alias of a paused model wait, too; jobs that name no
    model do not.

    Example: thothy queue pause --wait --note "new worker image" --timeout 10m
    """
    from thothy_ai.queue.control import set_paused
    from thothy_ai.queue.pauses import pause_part

    if timeout is not None and not wait:
        usage("--timeout needs --wait")
    check_note("--note", note)
    part = _part(kind=kind, tenant=tenant, model=model, engine=engine_name)
    with database() as engine:
        said = f"Paused {part[0]} {printable(part[1])}." if part else "Paused."
        if part:
            scope, name = part
            if scope == "kind":
                check_kinds(engine, [name])
            elif scope == "engine":
                check_engine(engine, name)
            if before := pause_part(engine, *part, by=operator(), note=note):
                said = f"Already {part_paused_since(before)}{_renamed(before.note, note)}."
        elif (whole := set_paused(engine, paused=True, note=note)).paused:
            said = f"Already {paused_since(whole.changed_at, whole.note)}{_renamed(whole.note, note)}."
        if not wait:
            return print_text(f"{said} {_how_to_resume(part)}")
        print_text(said)
        try:
            return _wait(engine, part, None if timeout is None else timeout.total_seconds())
        except KeyboardInterrupt:
            typer.echo(f"Stopped waiting; {_named(part)} stays paused.", err=True)
            raise typer.Exit(INTERRUPTED) from None


@app.command()
def resume(kind: OfKind = None, tenant: OfTenant = None, model: OfModel = None, engine_name: OfEngine = None) -> None:
    """Resume dispatching from a paused queue, or from a part of it that was paused by itself.

    Example: thothy queue resume
    """
    from thothy_ai.queue.control import set_paused
    from thothy_ai.queue.pauses import resume_part

    if part := _part(kind=kind, tenant=tenant, model=model, engine=engine_name):
        with database() as engine:
            ended = resume_part(engine, *part)
        named = f"{part[0]} {printable(part[1])}"
        if ended is None:
            return print_text(f"The {named} was not paused.")
        return print_text(f"Resumed. The {named} had been {part_paused_since(ended)}.")
    with database() as engine:
        before = set_paused(engine, paused=False)
    if before.paused:
        return print_text(f"Resumed. The queue had been {paused_since(before.changed_at, before.note)}.")
    return print_text("The queue was not paused.")


@app.command()
def status(as_json: AsJson = False) -> None:
    """Show the queue's depth, how long the oldest job has waited, and which deadlines are near.

    Example: thothy queue status
    """
    from thothy_ai.queue.status import queue_status

    with database() as engine:
        now = queue_status(engine)
    if as_json:
        return print_json({**asdict(now), "open": now.open, "oldest_age_seconds": now.oldest_age})
    if now.paused:
        since = paused_since(now.changed_at, now.note)
        print_text(f"The queue has been {since}. `thothy queue resume` resumes dispatching.")
    for part in now.pauses:
        print_text(pause_sentence(part))
    return print_states(now) if now.open else typer.echo("The queue is empty.")


def _part(**names: str | None) -> Part | None:
    """The part of the queue that the options name; None: the whole queue."""
    from thothy_ai.queue.pauses import SCOPES

    given = [(scope, name) for scope in SCOPES if (name := names[scope]) is not None]
    if len(given) > 1:
        usage(f"--{given[0][0]} and --{given[1][0]} are mutually exclusive: pause one part of the queue at a time")
    for scope, name in given:
        check_note(f"--{scope}", name)
        if not name.strip() or "\0" in name:
            usage(f"--{scope} is not a name: {name!r}")
    return given[0] if given else None


def _named(part: Part | None) -> str:
    return f"the {part[0]} {printable(part[1])}" if part else "the queue"


def _how_to_resume(part: Part | None) -> str:
    option = f" --{part[0]} {printable(quote(part[1]))}" if part else ""
    return f"`thothy queue resume{option}` resumes dispatching."


def _renamed(before: str | None, note: str | None) -> str:
    return f"; the note is now: {printable(note)}" if note and note != before else ""


def _wait(engine: Engine, part: Part | None, timeout: float | None) -> None:
    from thothy_ai.admin.drain import until_idle
    from thothy_ai.queue.status import queue_status

    begun, last = time.monotonic(), None
    for running in until_idle(engine, *(part or ())):
        if running and running != last:
            typer.echo(f"{_still_running(running)} …")
            last = running
        if running and timeout is not None and time.monotonic() - begun >= timeout:
            fail(f"{_still_running(running)} after {timeout:g} s; {_named(part)} stays paused")
    if part:
        return print_text(f"No job of {_named(part)} is running. {_how_to_resume(part)}")
    waiting = queue_status(engine).open
    left = f"{count(waiting, 'job')} {'waits' if waiting == 1 else 'wait'}" if waiting else "none waits"
    return print_text(f"No job is running, and {left}. {_how_to_resume(part)}")


def _still_running(running: int) -> str:
    return f"{count(running, 'job')} {'is' if running == 1 else 'are'} still running"
