"""`thothy artifacts list`, `show` and `export`."""

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
from thothy_ai.cli.shell import AsJson, database, fail
from thothy_ai.cli.tables import json_text, print_json, printable, table
from thothy_ai.db.states import Verdict

app = typer.Typer(no_args_is_help=True, help="List, show and export artifacts.")

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@app.command("list")
def list_(
    verdict: Annotated[Verdict | None, typer.Option(help="Only artifacts with this verdict.")] = None,
    kind: Kind = None,
    since: Since = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of artifacts.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List artifacts, accepted and rejected, newest first.

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
    """Show the outputs of a job: the accepted artifact and any rejected outputs.

    Example: thothy artifacts show 019a9e2b-7c44-7d1e-9a53-0c8b3d9a4f10
    """
    from thothy_ai.admin.artifacts import list_artifacts
    from thothy_ai.admin.jobs import states_of

    with database() as engine:
        artifacts = list_artifacts(engine, job_id=job_id, limit=None)
        state = states_of(engine, [job_id]).get(job_id)
    if not artifacts:
        fail(f"job {job_id} has no artifact: its state is {state}" if state else f"no job with id {job_id}")
    if as_json:
        return print_json(artifacts)
    for artifact in artifacts:
        why = f", {artifact['reason']}" if artifact["reason"] else ""
        typer.secho(
            f"{artifact['kind']} {artifact['locale']}, attempt {artifact['attempt']}: {artifact['verdict']}{why}",
            bold=True,
        )
        body = artifact["body"]
        typer.echo(printable(artifact["text"]) if body is None else json_text(body, indent=2))
    return None


@app.command()
def export(
    to: Annotated[
        Path, typer.Argument(help="Folder (one JSON file per artifact), .jsonl file, or - for standard output.")
    ],
    verdict: Annotated[Verdict, typer.Option(help="Verdict of the artifacts to export.")] = Verdict.ACCEPTED,
    kind: Kind = None,
    since: Since = None,
) -> None:
    """Export artifacts to a folder, one JSON file each, or to one JSONL file.

    Example: thothy artifacts export out/ --since 2h
    """
    from thothy_ai.admin.artifacts import stream_artifacts

    with database() as engine:
        artifacts = stream_artifacts(engine, kind=kind, verdict=verdict, since=since)
        try:
            written = _write_jsonl(artifacts, to) if _is_jsonl(to) else write_folder(artifacts, to)
        except OSError as error:
            fail(f"cannot write {error.filename or to}: {error.strerror}")
    typer.echo(f"{written} artifacts written to {to}", err=True)


def _is_jsonl(to: Path) -> bool:
    return str(to) == "-" or to.suffix == ".jsonl"


def _write_jsonl(artifacts: Iterator[dict[str, Any]], to: Path) -> int:
    written = 0
    with nullcontext(sys.stdout) if str(to) == "-" else to.open("w", encoding="utf-8") as file:
        for written, artifact in enumerate(artifacts, 1):  # noqa: B007 - the last number is the count
            file.write(json_text(artifact) + "\n")
    return written


def write_folder(artifacts: Iterator[dict[str, Any]], to: Path) -> int:
    """Write each artifact to its own JSON file; returns the number of files. Raises `OSError`."""
    to.mkdir(parents=True, exist_ok=True)
    written = 0
    for written, artifact in enumerate(artifacts, 1):  # noqa: B007 - the last number is the count
        (to / file_name(artifact)).write_text(json_text(artifact, indent=2) + "\n", encoding="utf-8")
    return written


def file_name(artifact: dict[str, Any]) -> str:
    """A unique file name of safe ASCII characters: kind, locale, job id and attempt."""
    parts = [artifact["kind"], artifact["locale"], str(artifact["job_id"]), str(artifact["attempt"])]
    return ".".join(_UNSAFE.sub("_", part).strip(".")[:60] or "_" for part in parts) + ".json"


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:59] + "…"
