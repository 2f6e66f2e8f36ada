"""`thothy enqueue`: one job from flags, or many from a JSONL file."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from thothy_ai.cli import times
from thothy_ai.cli.shell import AsJson, load_settings, print_json, usage

if TYPE_CHECKING:
    from thothy_ai.jobs.registry import AnyKind


class KindCommands(TyperGroup):
    """One command for each job kind, made when it is asked for: help of `thothy` itself imports no kind."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - Typer names it
        """Names of the kinds."""
        return list(_registry().names())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - Typer names it
        """The command of a kind; None when there is no such kind."""
        registry = _registry()
        return _command(registry.find(cmd_name)) if cmd_name in registry.names() else None


app = typer.Typer(cls=KindCommands, invoke_without_command=True, rich_markup_mode=None)


@app.callback()
def enqueue(
    ctx: typer.Context,
    jsonl: Annotated[
        str | None, typer.Option(metavar="FILE", help="Many at once: one JSON object a line; - reads standard input.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue a job of a kind, or many from a JSONL file: all of them, or none if one is wrong.

    A line has "kind", "request", and if wanted "priority", "deadline", "not_before", "idempotency_key", "max_attempts".

    Example: thothy enqueue trend_summary --source-file notes.txt --audience "indie founders" --deadline 2h

    Example: thothy enqueue --jsonl jobs.jsonl
    """
    if ctx.invoked_subcommand is not None:
        if jsonl:
            usage("--jsonl goes without a kind: each line names its own")
        return
    if jsonl is None:
        typer.echo(ctx.get_help())
        raise typer.Exit(2)
    _enqueue_lines(jsonl, as_json)


def _enqueue_lines(file: str, as_json: bool) -> None:
    from thothy_ai.cli.jsonl import JobLines
    from thothy_ai.errors import InvalidJobError
    from thothy_ai.producer import Producer

    lines = JobLines(file)
    with Producer(load_settings()) as producer:
        try:
            ids = [job.id for job in producer.enqueue_many(lines)]
        except InvalidJobError as error:
            raise InvalidJobError(lines.where, str(error)) from None
    if as_json:
        print_json({"ids": ids})
    else:
        typer.echo(f"{len(ids)} jobs enqueued.")


def _enqueue_one(kind: AnyKind, values: dict[str, Any], as_json: bool, **options: Any) -> None:
    from thothy_ai.producer import Producer
    from thothy_ai.queue.drafts import parse_request

    request = parse_request(kind.name, values)
    with Producer(load_settings()) as producer:
        job = producer.enqueue(request, **options)
    if as_json:
        print_json({"id": job.id, "kind": kind.name})
    else:
        typer.echo(str(job.id))


def _command(kind: AnyKind) -> Any:
    """The command of one kind: a flag for each field of its request, and what every job has."""
    from thothy_ai.cli.kind_flags import flags_of, values_of, with_flags

    flags = flags_of(kind.request)

    def run(
        *,
        priority: Annotated[int, typer.Option(min=-100, max=100, help="Higher goes first.")] = 0,
        deadline: Annotated[
            datetime | None,
            typer.Option(parser=times.ahead, metavar="TIME", help="Not later than: 2h, or 2026-11-21T06:00."),
        ] = None,
        not_before: Annotated[
            datetime | None, typer.Option(parser=times.ahead, metavar="TIME", help="Not sooner than: 30m, or a time.")
        ] = None,
        key: Annotated[
            str | None, typer.Option(help="Idempotency key: the same key gives the same job, enqueued once.")
        ] = None,
        as_json: AsJson = False,
        **given: Any,
    ) -> None:
        values = values_of(flags, given)
        _enqueue_one(
            kind, values, as_json, priority=priority, deadline=deadline, not_before=not_before, idempotency_key=key
        )

    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(kind.name, help=_help(kind))(with_flags(run, flags))
    return get_command(single)


def _help(kind: AnyKind) -> str:
    """What the kind is, and an example with the fields that it can't do without."""
    about = (kind.request.__doc__ or f"Enqueue a {kind.name}.").strip()
    required = [name for name, field in kind.request.model_fields.items() if field.is_required()]
    flags = " ".join(f"--{name.replace('_', '-')}-file {name}.txt" for name in required)
    return f"{about}\n\nExample: thothy enqueue {kind.name} {flags} --priority 5 --deadline 2h"


def _registry() -> Any:
    """The registry, with the kinds that the settings name. Raises `ConfigError`."""
    from thothy_ai.jobs import registry
    from thothy_ai.queue.drafts import load_kinds

    load_kinds(load_settings())
    return registry
