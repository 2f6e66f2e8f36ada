"""`thothy artifacts list`, `show` and `export`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from thothy_ai.admin.export.formats import Format
from thothy_ai.admin.export.pieces import text_of
from thothy_ai.cli.inputs.job_options import MAX_LISTED, NO_FILTERS, Filters, JobId, find_job
from thothy_ai.cli.inputs.parameters import with_fields
from thothy_ai.cli.shell import LONG_SECONDS, AsJson, database, fail, load_settings, usage
from thothy_ai.cli.views.artifact import provenance_lines, verification_lines
from thothy_ai.cli.views.artifact_files import FOLDER_FORMATS, Grouping, is_output, write
from thothy_ai.cli.views.tables import (
    Column,
    count,
    more_exist,
    print_json,
    print_text,
    printable,
    table,
    terminal_width,
)
from thothy_ai.db.states import ArtifactVerdict

app = typer.Typer(name="artifacts", no_args_is_help=True, help="List, show and export artifacts.")
COLUMNS = {
    "job_id": Column("job"),
    "kind": Column("kind"),
    "locale": Column("locale", drop=2),
    "verdict": Column("verdict"),
    "reason": Column("reason"),
    "created_at": Column("created", drop=3),
    "idempotency_key": Column("key", drop=4),
}
Approved = Annotated[bool, typer.Option("--approved", help="Only artifacts that a person has approved.")]
_LIKE_A_FILE = re.compile(r"\.[A-Za-z]{2,5}")  # an extension that hardly any folder has


@app.command("list")
@with_fields
def list_(
    verdict: Annotated[ArtifactVerdict | None, typer.Option(help="Only artifacts with this verdict.")] = None,
    approved: Approved = False,
    filters: Filters = NO_FILTERS,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LISTED, help="Maximum number of artifacts.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List artifacts, accepted and rejected, newest first.

    Example: thothy artifacts list --verdict rejected --kind translation
    """
    from thothy_ai.admin.artifacts import list_artifacts

    with database(LONG_SECONDS) as engine:
        found = list_artifacts(
            engine,
            filters.jobs(engine),
            verdict=verdict,
            approved=approved,
            since=filters.since,
            until=filters.until,
            limit=limit + 1,
        )
    if as_json:
        return print_json(found[:limit])
    if not found:
        return typer.echo(filters.nothing(f"{verdict} artifacts" if verdict else "artifacts"))
    rows = [[*(artifact[column] for column in COLUMNS), text_of(artifact)] for artifact in found[:limit]]
    table("", [*COLUMNS.values(), Column("text", text=True, drop=1)], rows)
    return more_exist(len(found), limit)


@app.command()
def show(job_id: JobId, as_json: AsJson = False) -> None:
    """Show the outputs of a job: the accepted artifact and any rejected outputs.

    Example: thothy artifacts show 3d9a4f10
    """
    from thothy_ai.admin.artifacts import list_artifacts
    from thothy_ai.admin.jobs import states_of

    with database(LONG_SECONDS) as engine:
        found = find_job(engine, job_id)
        artifacts = list_artifacts(engine, job_id=found, limit=None)
        state = states_of(engine, [found]).get(found)
    if not artifacts:
        fail(f"job {found} has no artifact: its state is {state}" if state else f"no job with id {found}")
    if as_json:
        return print_json(artifacts)
    for artifact in artifacts:
        why = f", {artifact['reason']}" if artifact["reason"] else ""
        about = f"{artifact['kind']} {artifact['locale']}, attempt {artifact['attempt']}: {artifact['verdict']}{why}"
        typer.secho(printable(about), bold=True)
        if terminal_width() is not None:
            print_text(text_of(artifact))
        elif artifact["body"] is not None:
            print_json(artifact["body"])
        else:
            print_text(artifact["text"])
        for line in (*provenance_lines(artifact["provenance"]), *verification_lines(artifact["verification"])):
            print_text(line)
    return None


@app.command()
@with_fields
def export(
    to: Annotated[
        Path,
        typer.Argument(
            metavar="TARGET", help="Folder, .jsonl or .csv file, or - for standard output.", show_default=False
        ),
    ],
    verdict: Annotated[
        ArtifactVerdict, typer.Option(help="Verdict of the artifacts to export.")
    ] = ArtifactVerdict.ACCEPTED,
    approved: Approved = False,
    chosen: Annotated[
        Format | None,
        typer.Option(
            "--format", help="Default: by the target's extension; json for a folder, jsonl for standard output."
        ),
    ] = None,
    per: Annotated[
        Grouping, typer.Option(help="Contents of each file in a folder: one artifact, or all artifacts of a source.")
    ] = Grouping.ARTIFACT,
    filters: Filters = NO_FILTERS,
) -> None:
    """Export artifacts with their identifying fields: key, kind, channel, source, parent, model and seed.

    json, md and html write files into a folder; jsonl and csv write one file. A Markdown file has front matter for
    Hugo, Astro and Jekyll: title, description, slug, date, lang, tags, and provenance for the rest. An HTML file is a
    page with one <article> per artifact, without scripts or styles. A CSV file has a row per artifact, or per text to
    choose from; a cell that a spreadsheet would take for a formula begins with an apostrophe.

    Example: thothy artifacts export out/ --format md --since 2h

    Example: thothy artifacts export site/ --format html --per source

    Example: thothy artifacts export week.csv --since 7d
    """
    from thothy_ai.admin.artifacts import stream_artifacts
    from thothy_ai.producer.drafts import load_kinds

    load_kinds(load_settings())  # kinds say how their artifacts are published
    form = _format_of(to, chosen)
    if per is Grouping.SOURCE and (form not in FOLDER_FORMATS or is_output(to)):
        usage("--per source goes to a folder, with --format json, md or html")
    with database(LONG_SECONDS) as engine:
        jobs, by_source = filters.jobs(engine), per is Grouping.SOURCE
        artifacts = stream_artifacts(
            engine,
            jobs,
            verdict=verdict,
            approved=approved,
            since=filters.since,
            until=filters.until,
            by_source=by_source,
        )
        try:
            written = write(artifacts, to, form, per)
        except BrokenPipeError:  # `| head` has read enough
            raise
        except OSError as error:
            fail(f"cannot write {error.filename or to}: {error.strerror}")
    noun = f"{verdict} artifact"
    place = "standard output" if is_output(to) else to
    typer.echo(f"{count(written, noun)} written to {place}" if written else filters.nothing(f"{noun}s"), err=True)


def _format_of(to: Path, wanted: Format | None) -> Format:
    """The format that was asked for, or that the target's name implies. Raises `BadParameter`."""
    named = Format(to.suffix[1:].lower()) if to.suffix[1:].lower() in list(Format) and not to.is_dir() else None
    if not (wanted or named or to.is_dir()) and _LIKE_A_FILE.fullmatch(to.suffix):
        usage(f"cannot tell a format from {to}; pass --format, or name a folder, or a .jsonl or .csv file")
    chosen = wanted or named or (Format.JSONL if is_output(to) else Format.JSON)
    if chosen is Format.JSON and is_output(to):
        usage("JSON goes to a folder, one file per artifact; for standard output, pass --format jsonl, csv, md or html")
    if chosen in FOLDER_FORMATS and named is chosen:
        usage(f"{to}: {chosen} goes to a folder, one file per artifact; for one file, name it .jsonl or .csv")
    return chosen
