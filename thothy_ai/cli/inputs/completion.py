"""Completes options and arguments in a shell.

The shell runs `thothy` with the typed text in environment variables, and waits with its prompt. A failure or a slow
database therefore completes to nothing, without a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps

from thothy_ai.bench.alarm import alarm
from thothy_ai.cli.shell import database, load_settings
from thothy_ai.cli.views.tables import count, short_id

SECONDS = 2.0  # to complete from the database, once connected
RECENT_JOBS = 500  # from which an id is completed
Choice = tuple[str, str]  # a value and its description


def _quietly(choices: Callable[[str], Iterator[Choice]]) -> Callable[[str], list[Choice]]:
    @wraps(choices)
    def complete(incomplete: str) -> list[Choice]:
        with suppress(Exception):
            return list(choices(incomplete))
        return []

    return complete


@_quietly
def kinds(incomplete: str) -> Iterator[Choice]:
    from thothy_ai.jobs import registry
    from thothy_ai.producer.drafts import load_kinds

    with suppress(Exception):
        load_kinds(load_settings())
    for name in registry.names():
        if name.startswith(incomplete):
            yield name, (registry.find(name).request.__doc__ or "").strip().partition("\n")[0]


@_quietly
def job_ids(incomplete: str) -> Iterator[Choice]:
    """The short ids of the newest jobs; whole ids if the beginning of one was typed."""
    from thothy_ai.admin.filters import recent_jobs

    with alarm(SECONDS, TimeoutError), database() as engine:
        jobs = recent_jobs(engine, RECENT_JOBS)
    typed = incomplete.lower()
    for job in jobs:
        for shown in (short_id(job.id), str(job.id)):
            if shown.startswith(typed) and (typed or shown != str(job.id)):
                yield shown, f"{job.kind}, {job.state}"


@_quietly
def reasons(incomplete: str) -> Iterator[Choice]:
    """The reasons for which validators reject an output, and those of the dead jobs in the database."""
    from thothy_ai.admin.dead_letters import groups
    from thothy_ai.jobs import RejectionReason

    found: dict[str, str] = dict.fromkeys(RejectionReason, "an output was rejected")
    with suppress(Exception), alarm(SECONDS, TimeoutError), database() as engine:
        found |= {group.reason: count(group.jobs, "dead job") for group in groups(engine)}
    yield from ((str(reason), why) for reason, why in sorted(found.items()) if reason.startswith(incomplete))
