"""`thothy review`: walk through what waits for a person, and decide; or decide with one command."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thothy_ai.cli.inputs import times
from thothy_ai.cli.inputs.job_options import JobId, Kind, Tenant, check_kinds, find_job
from thothy_ai.cli.shell import AsJson, database, fail, stdin_is_a_terminal, usage, user_name
from thothy_ai.cli.views.tables import (
    Column,
    count,
    more_exist,
    print_json,
    print_text,
    printable,
    short_id,
    table,
    terminal_width,
)
from thothy_ai.db.states import Action, ReviewState

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from thothy_ai.admin.review import WaitingArtifact
    from thothy_ai.producer.decisions import CurrentVersion

app = typer.Typer(name="review", invoke_without_command=True)

By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who decides. Default: the user of this command.")]
Version = Annotated[
    int | None, typer.Option(min=1, help="The version that you have seen: refused if there is another one by now.")
]
Note = Annotated[str | None, typer.Option(metavar="TEXT", help="Kept with the decision.")]
Held = Annotated[bool, typer.Option("--held", help="Also what was put aside.")]
CleanSince = Annotated[
    datetime | None,
    typer.Option(
        parser=times.since,
        metavar="TIME",
        help="Also artifacts without any finding, of jobs that ended after this time: 2h, 3d, 2026-11-21T06:00.",
    ),
]
SHOWN = (
    "job_id", "tenant", "kind", "locale", "state", "review", "version", "deadline", "finished_at", "body", "problem",
    "edited_by", "findings", "written", "text", "source",
)  # fmt: skip
KEYS = "a approve  e edit  r reject  s send back  h hold  n next  q quit"
ESCAPE_SECONDS = 0.1  # within this time, the rest of an arrow key's sequence follows its first byte
DONE = {
    Action.APPROVE: "approved", Action.EDIT: "edited", Action.REJECT: "rejected", Action.SEND_BACK: "sent back",
    Action.HOLD: "held", Action.REOPEN: "reopened",
}  # fmt: skip


@app.callback()
def walk(
    context: typer.Context,
    by: By = None,
    kind: Kind = None,
    tenant: Tenant = None,
    held: Held = False,
    clean_since: CleanSince = None,
) -> None:
    """Walk through the artifacts that wait for a person, those with the earliest deadline first, and decide with a key.

    Each is shown with its findings at their places and what the source says. e opens $EDITOR.

    Example: thothy review --by Ann

    Example: thothy review --clean-since 24h
    """
    if context.invoked_subcommand is not None:
        if (by, kind, tenant, held, clean_since) != (None, None, None, False, None):
            usage(f"options of `{context.invoked_subcommand}` follow its name")
        return None
    if not stdin_is_a_terminal():
        usage("stdin is not a terminal: see `thothy review list`, and decide with `thothy review approve ID`")
    with database() as engine:
        waiting = _waiting(engine, kind, tenant, held, clean_since)
        if not waiting:
            return typer.echo("Nothing waits.")
        decided = 0
        for place, each in enumerate(waiting, start=1):
            made = _ask(engine, each, by or user_name(), f"{place}/{len(waiting)}")
            if made is None:
                break
            decided += made
    return typer.echo(f"{count(decided, 'decision')} made.")


@app.command("list")
def list_(
    kind: Kind = None,
    tenant: Tenant = None,
    held: Held = False,
    clean_since: CleanSince = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of artifacts.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the artifacts that wait for a person, those with the earliest deadline first.

    Example: thothy review list --kind hook --held
    """
    with database() as engine:
        found = _waiting(engine, kind, tenant, held, clean_since, limit + 1)
    if as_json:
        return print_json([asdict(each) for each in found[:limit]])
    if not found:
        return typer.echo("Nothing waits.")
    columns = [
        Column("job"), Column("kind"), Column("review"), Column("version", number=True), Column("deadline", drop=1),
        Column("key", drop=2), Column("tenant", drop=3),
    ]  # fmt: skip
    rows = [
        [
            each.job_id,
            each.kind,
            each.review.replace("_", " "),
            each.version,
            each.deadline,
            each.idempotency_key,
            each.tenant,
        ]
        for each in found[:limit]
    ]
    table("", columns, rows)
    return more_exist(len(found), limit)


@app.command()
def show(
    job_id: JobId,
    source: Annotated[bool, typer.Option("--source", help="Show all of the source, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the current version of a job's artifact: its fields, findings, changes and decisions.

    Example: thothy review show 3d9a4f10
    """
    with database() as engine:
        current = _current(engine, job_id)
    if as_json:
        return print_json(
            {name: getattr(current, name) for name in SHOWN} | {"decisions": list(map(asdict, current.decisions))}
        )
    _show(current)
    if source:
        typer.echo(f"\n{printable(current.source)}")
    return None


@app.command()
def approve(
    job_id: JobId,
    by: By = None,
    note: Note = None,
    voice: Annotated[
        str | None, typer.Option(metavar="NAME", help="Make it an example of this voice. Default: that of the request.")
    ] = None,
    version: Version = None,
) -> None:
    """Approve the artifact of a job: it is what `result()` returns.

    Example: thothy review approve 3d9a4f10 --by Ann
    """
    _decide(job_id, version, Action.APPROVE, by, note, voice=voice)


@app.command()
def reject(
    job_id: JobId,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Why nobody should publish it.")],
    by: By = None,
    version: Version = None,
) -> None:
    """Reject the artifact of a job.

    Example: thothy review reject 3d9a4f10 --note "the warning is given to the wrong speaker" --by Ann
    """
    _decide(job_id, version, Action.REJECT, by, note)


@app.command("send-back")
def send_back(
    job_id: JobId,
    note: Annotated[
        str, typer.Option("--note", metavar="TEXT", help="What the next attempt is to do otherwise: its prompt has it.")
    ],
    by: By = None,
    version: Version = None,
) -> None:
    """Have the model write it once more, with a note in its prompt.

    Example: thothy review send-back 3d9a4f10 --note "Name the river." --by Ann
    """
    _decide(job_id, version, Action.SEND_BACK, by, note)


@app.command()
def hold(job_id: JobId, by: By = None, note: Note = None, version: Version = None) -> None:
    """Put the artifact of a job aside.

    Example: thothy review hold 3d9a4f10 --note "wait for the press release"
    """
    _decide(job_id, version, Action.HOLD, by, note)


@app.command()
def reopen(job_id: JobId, by: By = None, note: Note = None, version: Version = None) -> None:
    """Let an artifact that was approved or rejected wait again, as if it was held.

    Example: thothy review reopen 3d9a4f10
    """
    _decide(job_id, version, Action.REOPEN, by, note)


@app.command()
def edit(
    job_id: JobId,
    file: Annotated[
        Path | None,
        typer.Argument(
            help="The new fields, as JSON or as `== field` lines; without it, $EDITOR opens.", show_default=False
        ),
    ] = None,
    by: By = None,
    note: Note = None,
    version: Version = None,
) -> None:
    """Write the next version of an artifact. The same rules check it; it waits for a decision of its own.

    Example: thothy review edit 3d9a4f10 --by Ann

    Example: thothy review edit 3d9a4f10 hook.json
    """
    from thothy_ai.cli.inputs.field_text import field_text

    if file is None and not stdin_is_a_terminal():
        usage("stdin is not a terminal: pass a file")
    with database() as engine:
        current = _current(engine, job_id)
        body = _edited(current) if file is None else _read(file, current)
        if body is None:
            return typer.echo("Nothing was changed.")
        with _kept(current, field_text(body) if file is None else None):
            current = _made(engine, current, version, Action.EDIT, by, note, body=body)
    return _show(current)


def _waiting(
    engine: Engine,
    kind: str | None,
    tenant: str | None,
    held: bool,
    clean_since: datetime | None,
    limit: int | None = None,
) -> list[WaitingArtifact]:
    from thothy_ai.admin.review import review_queue

    check_kinds(engine, [kind] if kind else [])
    reviews = [ReviewState.NEEDS_REVIEW, ReviewState.NEEDS_EDIT, *([ReviewState.HELD] if held else [])]
    return review_queue(engine, reviews, clean_since=clean_since, kind=kind, tenant=tenant, limit=limit)


def _current(engine: Engine, ref: str) -> CurrentVersion:
    from thothy_ai.admin.review import current_version
    from thothy_ai.cli.shell import load_settings
    from thothy_ai.producer.drafts import load_kinds

    load_kinds(load_settings())
    return current_version(engine, find_job(engine, ref))


def _decide(ref: str, version: int | None, action: Action, by: str | None, note: str | None, **more: Any) -> None:
    with database() as engine:
        current = _current(engine, ref)
        after = _made(engine, current, version, action, by, note, **more)
    typer.echo(f"Version {version or current.version} of job {after.job_id} is {DONE[action]}.")


def _made(
    engine: Engine,
    current: CurrentVersion,
    version: int | None,
    action: Action,
    by: str | None,
    note: str | None,
    **more: Any,
) -> CurrentVersion:
    from thothy_ai.admin import review
    from thothy_ai.producer.decisions import Decision

    decision = Decision(action, by or user_name(), note, **more)
    return review.decide(engine, current.job_id, version or current.version, decision, current.check(decision))


def _show(current: CurrentVersion) -> None:
    from thothy_ai.cli.views.review import version_lines

    given = os.environ.get("COLUMNS", "")  # set by the reader of a pipe, such as a pager or an editor
    for line in version_lines(current, terminal_width() or (int(given) if given.isdecimal() else None)):
        typer.echo(line)


def _ask(engine: Engine, waiting: WaitingArtifact, by: str, place: str) -> int | None:
    """The number of decisions made on this artifact, or None to end."""
    from thothy_ai.cli.inputs.field_text import field_text
    from thothy_ai.errors import DatabaseError, ThothyError, UnknownJobError

    made = 0
    try:
        current = _current(engine, str(waiting.job_id))
        _show_anew(current)
        while True:
            key = _key(f"[{place}] {KEYS}: ")
            if key in {"q", "\x04", ""}:
                return None
            if key == "n":
                return made
            try:
                wanted = _wanted(key, current)
                if wanted is None:
                    continue
                with _kept(current, field_text(wanted["body"]) if "body" in wanted else None):
                    current = _made(engine, current, current.version, by=by, **wanted)
            except (DatabaseError, UnknownJobError):
                raise
            except ThothyError as error:  # someone else decided first, or this decision is not possible
                print_text(str(error))
                current = _current(engine, str(waiting.job_id))
                _show_anew(current)
                continue
            made += 1
            if wanted["action"] is not Action.EDIT:
                return made
            _show_anew(current)
    except UnknownJobError as error:  # the job was purged meanwhile
        print_text(f"{error}: skipped")
        return made


def _show_anew(current: CurrentVersion) -> None:
    """Show the artifact, and discard keys that were pressed before, since they were not about this text."""
    import termios

    _show(current)
    sys.stdout.flush()
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _key(prompt: str) -> str:
    """The key that is pressed; empty at the end of the input, and for Ctrl-C."""
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal, termios.TCSADRAIN)
    try:
        typer.echo(prompt, nl=False)
        key = _press(terminal)
    except KeyboardInterrupt:
        key = ""
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    typer.echo(key if len(key) == 1 and key.isprintable() else "")
    return key


def _press(terminal: int) -> str:
    """The characters of one key press, or of a paste, which has several and stands for no decision."""
    import select

    sent = os.read(terminal, 4096)
    while sent.startswith(b"\x1b") and select.select([terminal], [], [], ESCAPE_SECONDS)[0]:
        rest = os.read(terminal, 4096)
        sent += rest
        if not rest:
            break
    text = sent.decode("ascii", "replace")
    return text[:1] if len(set(text)) == 1 else text  # a key that is held down repeats


def _wanted(key: str, current: CurrentVersion) -> dict[str, Any] | None:
    """The decision that a key stands for; None if there is none, or the person changed their mind."""
    ask: dict[str, tuple[Action, str]] = {
        "r": (Action.REJECT, "Why"),
        "s": (Action.SEND_BACK, "Note for the next attempt"),
    }
    plain = {"a": Action.APPROVE, "h": Action.HOLD}
    if key in plain:
        return {"action": plain[key], "note": None}
    if key in ask:
        action, question = ask[key]
        note = typer.prompt(f"{question} (empty: nothing is done)", default="", show_default=False).strip()
        return {"action": action, "note": note} if note else None
    if key == "e" and (body := _edited(current)) is not None:
        return {"action": Action.EDIT, "note": None, "body": body}
    return None


def _edited(current: CurrentVersion) -> dict[str, Any] | None:
    """The fields as edited in $EDITOR, which opens again while they are no valid artifact; None if nothing changed."""
    from thothy_ai.cli.inputs.field_text import field_text, fields_of
    from thothy_ai.errors import InvalidDecisionError

    body = current.body if current.body is not None else {"text": current.text or ""}
    about = (
        f"Version {current.version} of a {current.kind}. Leave the lines that begin with == as they are; without the\n"
        f"fields of an item of a list, the item goes. Save to make the next version.\n{current.problem or ''}"
    )
    text = shown = field_text(body, about.rstrip())
    while True:
        changed = _in_editor(current, text, shown)
        if changed == shown:
            return None
        try:
            made = fields_of(changed, body)
        except InvalidDecisionError as error:
            print_text(str(error))
            with _kept(current, changed):
                again = typer.confirm("Edit it again?", default=True)
            if not again:
                _keep(current, changed.encode())
                return None
            text = changed
            continue
        return None if made == current.body else made


@contextmanager
def _kept(current: CurrentVersion, text: str | None) -> Iterator[None]:
    """If the text written in $EDITOR cannot become a version, keep it in a file, and tell the person where."""
    try:
        yield
    except BaseException:
        if text is not None:
            _keep(current, text.encode())
        raise


def _keep(current: CurrentVersion, text: bytes) -> None:
    with tempfile.NamedTemporaryFile(prefix="thothy-review-", suffix=".txt", delete=False) as file:
        file.write(text)
    typer.echo("What you wrote is kept, for this command:")
    typer.echo(f"thothy review edit {short_id(current.job_id)} {file.name}")


def _in_editor(current: CurrentVersion, text: str, shown: str) -> str:
    """The text as the person's editor saves it; if that fails, a text that differs from the one `shown` is kept."""
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory(prefix="thothy-review-") as folder:
        file = Path(folder) / "artifact.txt"
        file.write_text(text, encoding="utf-8")
        try:
            subprocess.run([*command, str(file)], check=True)
            return file.read_text(encoding="utf-8")
        except BaseException as error:
            saved = file.read_bytes() if file.is_file() else text.encode()
            if saved.strip() and saved != shown.encode():
                _keep(current, saved)
            if isinstance(error, UnicodeDecodeError):
                fail(f"what the editor {command[0]} saved is not UTF-8: {error}")
            if isinstance(error, OSError | subprocess.CalledProcessError):
                fail(f"the editor {command[0]} failed: {error}; set EDITOR to another one")
            raise


def _read(file: Path, current: CurrentVersion) -> Any:
    from thothy_ai.cli.inputs.field_text import fields_of
    from thothy_ai.cli.inputs.kind_flags import read_text

    text = read_text(str(file))
    if not text.lstrip().startswith("{"):
        return fields_of(text, current.body or {})
    try:
        return json.loads(text)
    except ValueError as error:
        return fail(f"{file} is not JSON: {error}", 2)
