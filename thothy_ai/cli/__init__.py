"""The `thothy` command: one module per command group. Heavy imports happen inside commands, to keep help fast."""

from __future__ import annotations

import typer

from thothy_ai.cli.commands import (
    alerts,
    artifacts,
    ask,
    bench,
    chaos,
    completion,
    database,
    dead,
    doctor,
    engines,
    enqueue,
    evaluation,
    history,
    jobs,
    logs,
    models,
    queue,
    report,
    report_forecast,
    report_parts,
    roles,
    services,
    stack,
    top,
    watch_job,
    webhooks,
)
from thothy_ai.cli.commands.version import Version
from thothy_ai.cli.shell import Commands

app = typer.Typer(
    name="thothy",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Drain a queue of content jobs through a resident GPU engine, and report jobs per GPU-hour.",
)
app.add_typer(stack.app)
app.add_typer(enqueue.app, name="enqueue")
app.add_typer(ask.app, name="ask")
app.add_typer(evaluation.app)
jobs.app.command()(watch_job.watch)
app.add_typer(jobs.app, name="jobs")
app.add_typer(dead.app, name="dead")
app.add_typer(history.app, name="history")
app.add_typer(artifacts.app, name="artifacts")
app.add_typer(report.app)
for part in (report_parts.bill, report_parts.drains, report_parts.check):
    report.reports.command()(part)
report.reports.command()(report_forecast.forecast)
app.add_typer(queue.app, name="queue")
app.add_typer(top.app)
app.add_typer(database.app)
app.add_typer(roles.app, name="roles")
app.add_typer(webhooks.app, name="webhooks")
app.add_typer(doctor.app)
app.add_typer(engines.app)
app.add_typer(logs.app)
app.add_typer(chaos.app)
app.add_typer(bench.app, name="bench")
app.add_typer(models.app, name="models")
app.add_typer(services.app)
app.add_typer(alerts.app)
app.add_typer(completion.app)


@app.callback()
def _root(version: Version = False) -> None:
    """Settings come from THOTHY_* environment variables, then from the running embedded stack."""


def main() -> None:
    """Run the command line. An error is one line on standard error; the exit code is 1, or 2 for a usage error."""
    app()
