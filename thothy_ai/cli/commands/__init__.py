"""The commands of `thothy`, in the order of its help: one module per command group, which parses, calls, and prints.

A module is imported when one of its commands is looked up. The list of all commands is printed without any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.main import get_group

_MODULES = {
    "up": "stack",
    "demo": "stack",
    "enqueue": "enqueue",
    "ask": "ask",
    "eval": "evaluation",
    "jobs": "jobs",
    "dead": "dead",
    "history": "history",
    "review": "review",
    "artifacts": "artifacts",
    "briefs": "briefs",
    "drain": "drain",
    "report": "report",
    "queue": "queue",
    "top": "top",
    "migrate": "database",
    "roles": "roles",
    "keys": "keys",
    "console": "console",
    "webhooks": "webhooks",
    "doctor": "doctor",
    "engines": "engines",
    "logs": "logs",
    "chaos": "chaos",
    "bench": "bench",
    "models": "models",
    "adapters": "adapters",
    "engine": "services",
    "worker": "services",
    "dispatcher": "services",
    "reaper": "services",
    "serve": "services",
    "alertmanager-config": "alerts",
    "completion": "completion",
}
_SUMMARIES = {
    "up": (
        "Run the whole service on this machine until Ctrl-C: Postgres, Valkey, engine, dispatcher, worker, reaper,"
        " HTTP."
    ),
    "demo": "Drain a mixed queue on this machine, end to end, and print the report.",
    "enqueue": "Enqueue one job, or many from a JSONL file: all of them, or none if any is invalid.",
    "ask": "Send one request to the engine, past the queue: a job's, or a plain prompt.",
    "eval": "Measure a model on the cases of a kind or as a verifier of claims, or the validators.",
    "jobs": "List, show, retry, change and cancel jobs.",
    "dead": "Inspect dead jobs, queue them again, or delete them.",
    "history": "Months of finished jobs and their history, and their deletion.",
    "review": (
        "Walk through the artifacts that wait for a person, those with the earliest deadline first, and decide with a"
        " key."
    ),
    "artifacts": "List, show and export artifacts.",
    "briefs": "Store briefs under names, for requests to name.",
    "drain": "Watch the queue until no job is due, then print the drain report, starting at the oldest open job.",
    "report": ("Report jobs per GPU-hour, drain time, failure rate and yield of a time window (default: 24 hours)."),
    "queue": "Pause, resume and inspect the queue.",
    "top": "Show queue, workers, engines and the last hour, refreshed every second.",
    "migrate": "Upgrade the database schema to this version.",
    "roles": "Give each tenant's producers a database role of their own.",
    "keys": "Give programs keys for the HTTP API of `thothy serve`.",
    "console": "Print a link that signs in to the web console of `thothy serve`.",
    "webhooks": "List webhooks, send dead ones again, show the receivers' secret.",
    "doctor": "Check every part of the service, and say how to fix what is wrong.",
    "engines": (
        "List the engines of the queue, on all machines: state, devices, running jobs, output tokens of the"
        " last minute."
    ),
    "logs": "Show the logs of the embedded stack, ordered by time: those of a running stack, or of the last one.",
    "chaos": "Inject faults into a stack of its own while it drains a queue; check that nothing is lost or done twice.",
    "bench": "Measure the engine on this machine.",
    "models": "Look at models before an engine loads them, and name them.",
    "adapters": "Load, unload and list the adapters of engines.",
    "engine": "Run the engine: the resident process that holds the weights and the KV cache.",
    "worker": (
        "Run a Celery worker: it claims jobs, sends them to the engine, validates the results and records the outcome."
    ),
    "dispatcher": "Run the dispatcher: it moves due jobs to Redis in planned order.",
    "reaper": "Run the reaper: it takes back lost jobs, ends expired ones and keeps usage and batches up to date.",
    "serve": "Serve OpenAI's API over HTTP: chat completions and completions, by the engines of the queue.",
    "alertmanager-config": (
        "Print Alertmanager's configuration, with the receivers that the THOTHY_ALERT_* settings name."
    ),
    "completion": "Print the script that completes commands, options, kinds, states, reasons and job ids.",
}


class Commands(Mapping[str, Any]):
    """The commands by name. A lookup imports the command's module; iterating over names imports nothing."""

    def __getitem__(self, name: str) -> Any:
        root = typer.Typer(rich_markup_mode=None)
        root.add_typer(import_module(f"{__name__}.{_MODULES[name]}").app)
        return get_group(root).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


def summary_of(name: str) -> str:
    """The first sentence of a command's help, known without its module."""
    return _SUMMARIES[name]
