"""A job in full: for a terminal, and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from thothy_ai.admin.durations import spell
from thothy_ai.admin.export.pieces import text_of
from thothy_ai.admin.json_text import json_text
from thothy_ai.cli.views.tables import Column, count, print_fields, printable, table, terminal_width

if TYPE_CHECKING:
    from thothy_ai.admin.jobs import JobCost
    from thothy_ai.settings import Settings

FIELDS = {  # other fields are only in the JSON
    "id": "id",
    "kind": "kind",
    "state": "state",
    "review": "review",
    "reason": "reason",
    "detail": "detail",
    "cancel_requested": "cancel requested",
    "idempotency_key": "key",
    "parent_id": "parent",
    "source_key": "source key",
    "tenant": "tenant",
    "model": "model asked for",
    "priority": "priority",
    "deadline": "deadline",
    "not_before": "not before",
    "enqueued_at": "enqueued",
    "started_at": "started",
    "finished_at": "finished",
    "worker": "worker",
    "attempt": "attempts",
    "failures": "failures",
    "engine_deaths": "engine deaths",
}
TABLES = {
    "attempts": {
        "attempt": Column("attempt", number=True),
        "outcome": Column("outcome"),
        "reason": Column("reason"),
        "started_at": Column("started", drop=3),
        "seconds": Column("took", number=True, drop=1),
        "output_tokens": Column("tokens", number=True, drop=2),
        "device_seconds": Column("compute-s", number=True, drop=4),
        "worker": Column("worker", drop=6),
        "model": Column("model", drop=7),
        "seed": Column("seed", number=True, drop=8),
        "detail": Column("detail", text=True),
    },
    "artifacts": {
        "attempt": Column("attempt", number=True),
        "locale": Column("locale"),
        "verdict": Column("verdict"),
        "reason": Column("reason"),
        "text": Column("text", text=True),
    },
    "findings": {
        "attempt": Column("attempt", number=True),
        "part": Column("field"),
        "text": Column("text", text=True),
        "reason": Column("reason"),
        "detail": Column("detail", text=True, drop=1),
    },
    "follow_ups": {
        "id": Column("id"),
        "kind": Column("kind"),
        "state": Column("state"),
        "reason": Column("reason"),
        "enqueued_at": Column("enqueued", drop=2),
        "finished_at": Column("finished", drop=1),
    },
    "events": {"at": Column("at"), "event": Column("event"), "detail": Column("detail", text=True)},
}


def job_json(job: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """A result of `show_job` as plain values; without a price in the settings, the price is null."""
    cost: JobCost = job["cost"]
    price = settings.price_per_compute_hour
    money = {"price": None if price is None else cost.price(price), "currency": settings.currency}
    return {**job, "cost": {**cost.to_json(), **money}}


def print_job(job: dict[str, Any], settings: Settings) -> None:
    """Print a result of `show_job` in full."""
    shown = {**job, "failures": f"{job['failures']} of at most {job['max_attempts']}"}
    if job["not_before"] <= job["enqueued_at"]:
        shown["not_before"] = None
    fields = [
        (name, shown[field]) for field, name in FIELDS.items() if shown[field] or field in {"priority", "attempt"}
    ]
    print_fields([*fields, ("cost", spell_cost(job["cost"], settings))])
    _print_request(job["request"])
    for name, columns in TABLES.items():
        rows = job[name]
        if name == "artifacts":
            rows = [{**row, "text": text_of(row)} for row in rows]
        elif name == "attempts":
            rows = [
                {
                    **row,
                    "seconds": spell((row["finished_at"] - row["started_at"]).total_seconds()),
                    "device_seconds": f"{row['device_seconds']:.2f}",
                }
                for row in rows
            ]
        if rows:
            typer.echo("")
            table(name.replace("_", "-"), list(columns.values()), [[row[column] for column in columns] for row in rows])


def spell_cost(cost: JobCost, settings: Settings) -> str:
    """A job's cost in device time and, with a price set, in money."""
    wasted = cost.seconds - cost.useful
    spelled = f"{cost.seconds:.2f} {'declared ' if cost.declared else ''}{cost.unit}s"
    if wasted > 0 and cost.useful > 0:
        spelled += f", {wasted:.2f} of them in attempts without an artifact"
    if settings.price_per_compute_hour is None:
        return spelled
    price = cost.price(settings.price_per_compute_hour)
    return f"{spelled}; {price:,.{2 if price >= 1 else 6}f} {settings.currency}"


def _print_request(request: dict[str, Any] | None) -> None:
    """Print the request: as JSON in a pipe; on a terminal one line per field, with long values cut."""
    from rich.cells import cell_len, set_cell_size

    typer.echo("\nrequest")
    width = terminal_width()
    if width is None or request is None:
        return typer.echo(json_text(request, indent=2))
    indent = max(map(len, request), default=0) + 2
    for name, value in request.items():
        text = value if isinstance(value, str) else json_text(value)
        line = f"{name:<{indent}}{printable(' '.join(text.split()))}"
        if cell_len(line) > width:
            note = f"… ({count(len(text), 'character')}; --json shows all)"
            line = set_cell_size(line, max(width - len(note), indent)).rstrip() + note
        typer.echo(line)
    return None
