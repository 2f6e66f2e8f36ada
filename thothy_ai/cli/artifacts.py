"""`thothy artifacts`: list, show, export."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from thothy_ai.cli.jobs import Kind, Since
from thothy_ai.cli.shell import AsJson, database, document, fail, print_json, printable, table
from thothy_ai.db.states import Verdict

app = typer.Typer(no_args_is_help=True, help="List, show and export artifacts.")

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@app.command("list")
def list_(
    verdict: Annotated[Verdict | None, typer.Option(help="Only accepted, or only rejected ones.")] = None,
    kind: Kind = None,
    since: Since = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List artifacts, accepted and rejected, the newest first.

    Example: thothy artifacts list --verdict rejected --kind translation
    """
    from thothy_ai.admin.artifacts import list_artifacts

    with database() as engine:
        artifacts = list_artifacts(engine, kind=kind, verdict=verdict, since=since, limit=limit)
    if as_json:
        return print_json(artifacts)
    if not artifacts:
        return typer.echo("No artifacts.")
    columns = ["job_id", "kind", "locale", "verdict", "reason", "created_at"]
    rows = [[*(artifact[column] for column in columns), _excerpt(artifact["text"])] for artifact in artifacts]
    return table("", [*columns[:-1], "created", "text"], rows)


@app.command()
def show(job_id: Annotated[UUID, typer.Argument(metavar="JOB_ID")], as_json: AsJson = False) -> None:
    """Show what a job brought forth: the accepted artifact, and outputs that were refused.

    Example: thothy artifacts show 019a9e2b-7c44-7d1e-9a53-0c8b3d9a4f10
    """
    from thothy_ai.admin.artifacts import list_artifacts
    from thothy_ai.admin.jobs import states_of

    with database() as engine:
        artifacts = list_artifacts(engine, job_id=job_id, limit=None)
        state = states_of(engine, [job_id]).get(job_id)
    if not artifacts:
        fail(f"no artifact of job {job_id}: " + (f"it is {state}" if state else "there is no such job"))
    if as_json:
        return print_json(artifacts)
    for artifact in artifacts:
        why = f", {artifact['reason']}" if artifact["reason"] else ""
        typer.secho(
            f"{artifact['kind']} {artifact['locale']}, attempt {artifact['attempt']}: {artifact['verdict']}{why}",
            bold=True,
        )
        body = artifact["body"]
        typer.echo(printable(artifact["text"]) if body is None else document(body, indent=2))
    return None


@app.command()
def export(
    to: Annotated[
        Path, typer.Argument(help="A folder (one JSON file an artifact), a .jsonl file, or - for standard output.")
    ],
    verdict: Annotated[Verdict, typer.Option(help="Which ones.")] = Verdict.ACCEPTED,
    kind: Kind = None,
    since: Since = None,
) -> None:
    """Write artifacts to a folder, one JSON file each, or to one JSONL file.

    Example: thothy artifacts export out/ --since 2h
    """
    from thothy_ai.admin.artifacts import stream_artifacts

    with database() as engine:
        artifacts = stream_artifacts(engine, kind=kind, verdict=verdict, since=since)
        try:
            written = _write_lines(artifacts, to) if _is_lines(to) else write_folder(artifacts, to)
        except OSError as error:
            fail(f"cannot write {error.filename or to}: {error.strerror}")
    typer.echo(f"{written} artifacts written to {to}", err=True)


def _is_lines(to: Path) -> bool:
    return str(to) == "-" or to.suffix == ".jsonl"


def _write_lines(artifacts: Iterator[dict[str, Any]], to: Path) -> int:
    written = 0
    with nullcontext(sys.stdout) if str(to) == "-" else to.open("w", encoding="utf-8") as file:
        for written, artifact in enumerate(artifacts, 1):  # noqa: B007 - the count is what is returned
            file.write(document(artifact) + "\n")
    return written


def write_folder(artifacts: Iterator[dict[str, Any]], to: Path) -> int:
    """Write each artifact to a JSON file of its own; returns how many. Raises `OSError`."""
    to.mkdir(parents=True, exist_ok=True)
    written = 0
    for written, artifact in enumerate(artifacts, 1):  # noqa: B007 - the count is what is returned
        (to / file_name(artifact)).write_text(document(artifact, indent=2) + "\n", encoding="utf-8")
    return written


def file_name(artifact: dict[str, Any]) -> str:
    """A name of plain characters that no other artifact has: job ids and attempts are in it."""
    parts = [artifact["kind"], artifact["locale"], str(artifact["job_id"]), str(artifact["attempt"])]
    return ".".join(_UNSAFE.sub("_", part).strip(".")[:60] or "_" for part in parts) + ".json"


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:59] + "…"
