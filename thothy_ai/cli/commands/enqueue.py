"""`thothy enqueue`: one job from options, or many from a JSONL file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from thothy_ai.cli.inputs import times
from thothy_ai.cli.inputs.help_names import name_values
from thothy_ai.cli.shell import WRONG_INPUT, AsJson, load_settings, usage
from thothy_ai.cli.views.tables import count, print_json
from thothy_ai.db.states import Notify

if TYPE_CHECKING:
    from thothy_ai.cli.inputs.kind_flags import Flag
    from thothy_ai.jobs.registry import AnyKind

MAX_ATTEMPTS = 32767  # a smallint in Postgres
Webhook = Annotated[str | None, typer.Option(metavar="URL", help="URL to notify when the job has ended.")]


class KindCommands(TyperGroup):
    """One command per job kind, built on demand, so that `thothy --help` imports no kind."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - Typer names it
        return list(_registry().names())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - Typer names it
        registry = _registry()
        return self.command_of(registry.find(cmd_name)) if cmd_name in registry.names() else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in (names := _registry().names()):
            usage(f"no kind {args[0]!r}; available: {', '.join(names)}")
        return super().resolve_command(ctx, args)

    def command_of(self, kind: AnyKind) -> Any:
        """The command of one kind: one option per request field, plus the options that all jobs share."""
        from thothy_ai.cli.inputs.kind_flags import flags_of, values_of, with_flags
        from thothy_ai.errors import InvalidJobError
        from thothy_ai.producer import Producer
        from thothy_ai.producer.drafts import parse_request

        flags = flags_of(kind.request)

        def run(
            *,
            priority: Annotated[int, typer.Option(min=-100, max=100, help="Priority; higher values run first.")] = 0,
            deadline: Annotated[
                datetime | None,
                typer.Option(
                    parser=times.ahead, metavar="TIME", help="Latest time to finish: 2h, or 2026-11-21T06:00."
                ),
            ] = None,
            not_before: Annotated[
                datetime | None,
                typer.Option(
                    parser=times.ahead, metavar="TIME", help="Earliest time to start: 30m, or 2026-11-21T06:00."
                ),
            ] = None,
            key: Annotated[
                str | None, typer.Option(help="Idempotency key: if a job has this key, it is returned instead.")
            ] = None,
            max_attempts: Annotated[
                int | None,
                typer.Option(
                    min=1, max=MAX_ATTEMPTS, help="Attempts that may fail before the job is dead.", metavar="N"
                ),
            ] = None,
            max_compute_seconds: Annotated[
                float | None,
                typer.Option(min=0, metavar="SECONDS", help="Compute-seconds that all attempts may use together."),
            ] = None,
            model: Annotated[
                str | None,
                typer.Option(
                    metavar="NAME", help="Model, adapter or alias to run on. Default: the kind's, otherwise any."
                ),
            ] = None,
            webhook: Webhook = None,
            as_json: AsJson = False,
            **given: Any,
        ) -> None:
            try:
                request = parse_request(kind.name, values_of(flags, given))
            except InvalidJobError as error:
                usage(str(error))
            with Producer(load_settings()) as producer:
                job = producer.enqueue(
                    request,
                    priority=priority,
                    deadline=deadline,
                    not_before=not_before,
                    idempotency_key=key,
                    max_attempts=max_attempts,
                    max_compute_seconds=max_compute_seconds,
                    model=model,
                    webhook=webhook,
                )
            if as_json:
                print_json({"id": job.id, "kind": kind.name, "existed": job.existed})
                return
            typer.echo(str(job.id))
            if job.existed:
                typer.echo("thothy: a job with this idempotency key already existed; nothing was enqueued", err=True)

        about = (kind.request.__doc__ or f"Enqueue a {kind.name}.").strip()
        example = f"Example: thothy enqueue {kind.name} {example_options(kind, flags)} --priority 5 --deadline 2h"
        return single_command(kind.name, f"{about}\n\n{example}", with_flags(run, flags))


app = typer.Typer(cls=KindCommands, name="enqueue", invoke_without_command=True, rich_markup_mode=None)


@app.callback()
def enqueue(
    ctx: typer.Context,
    jsonl: Annotated[
        str | None, typer.Option(metavar="FILE", help="JSONL file of jobs, one per line; - reads standard input.")
    ] = None,
    webhook: Annotated[
        str | None, typer.Option(metavar="URL", help="With --jsonl: URL to notify when all jobs have ended.")
    ] = None,
    notify: Annotated[
        Notify | None,
        typer.Option(
            help="With --webhook: when to notify it, once at the end of the batch or at the end of each job. "
            "Default: batch."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue one job, or many from a JSONL file: all of them, or none if any is invalid.

    A line has "kind", "request" and optionally "priority", "deadline", "not_before", "idempotency_key", "max_attempts",
    "max_compute_seconds", "model".

    Example: thothy enqueue trend_summary --source-file notes.txt --audience "indie founders" --deadline 2h

    Example: thothy enqueue --jsonl jobs.jsonl
    """
    if ctx.invoked_subcommand is not None:
        if jsonl:
            usage("--jsonl cannot be combined with a kind: each line names its own")
        if webhook:
            usage("--webhook of a single job comes after its kind")
        if notify:
            usage("--notify is for --jsonl: the webhook of a single job is notified of its end")
        return
    if jsonl is None:
        if webhook:
            usage("--webhook needs --jsonl FILE; that of a single job comes after its kind")
        if notify:
            usage("--notify needs --jsonl FILE, the file of the jobs")
        typer.echo(ctx.get_help(), err=True)
        raise typer.Exit(WRONG_INPUT)
    if notify and webhook is None:
        usage("--notify needs --webhook, the URL to notify")
    _enqueue_lines(jsonl, as_json, webhook, notify or Notify.BATCH)


def _enqueue_lines(file: str, as_json: bool, webhook: str | None, notify: Notify) -> None:
    from thothy_ai.cli.inputs.jsonl import JobLines
    from thothy_ai.errors import EntryError
    from thothy_ai.producer import Producer

    lines = JobLines(file)
    with Producer(load_settings()) as producer:
        try:
            jobs = producer.enqueue_many(lines, webhook=webhook, notify=notify)
        except EntryError as error:
            raise lines.located(error) from None
    existing = sum(job.existed for job in jobs)
    created = len(jobs) - existing
    if as_json:
        found = {"ids": [job.id for job in jobs], "created": created, "existing": existing}
        print_json(found | ({"batch_id": jobs.batch_id} if webhook else {}))
    else:
        typer.echo(f"{count(created, 'job')} enqueued" + (f"; {existing:,} already existed." if existing else "."))


def example_options(kind: AnyKind, flags: list[Flag]) -> str:
    """The options of an example: each required field of a request, a text as a file."""
    required = [flag for flag in flags if kind.request.model_fields[flag.field].is_required()]
    return " ".join(
        f"{flag.option}-file {flag.field}.txt" if flag.file else f"{flag.option} {flag.metavar}" for flag in required
    )


def single_command(name: str, help_text: str, run: Callable[..., None]) -> Any:
    """A command as a group holds it."""
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, help=help_text)(run)
    command = get_command(single)
    name_values(command)
    return command


def _registry() -> Any:
    """The kind registry, including the modules in THOTHY_KINDS. Raises `ConfigError`."""
    from thothy_ai.jobs import registry
    from thothy_ai.producer.drafts import load_kinds

    load_kinds(load_settings())
    return registry
