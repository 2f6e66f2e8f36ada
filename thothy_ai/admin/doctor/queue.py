"""The check of the queue: open jobs, a pause, jobs that no engine can run, and expired leases."""

from __future__ import annotations

from collections.abc import Iterator

from thothy_ai.admin.doctor.diagnosis import Diagnosis, Level
from thothy_ai.admin.doctor.stores import postgres_engine
from thothy_ai.admin.processes import Connected, connected
from thothy_ai.db.statements import statement
from thothy_ai.queue.status import QueueStatus, queue_status
from thothy_ai.settings import Settings

LATE_SECONDS = 10  # past its interval, a reaper should have taken a lease back
WAIT = "wait, then run `thothy doctor --only queue` again"


def queue(settings: Settings) -> Iterator[Diagnosis]:
    with postgres_engine(settings) as engine:
        status = queue_status(engine)
        counts = ", ".join(f"{status[state].jobs:,} {state}" for state in ("queued", "dispatched", "running"))
        yield Diagnosis("queue", Level.OK, counts if status.open else "empty")
        if status.paused:
            note = f" ({status.note})" if status.note else ""
            yield Diagnosis("queue", Level.WARNING, f"paused{note}: nothing is dispatched", "run `thothy queue resume`")
        for pause in status.pauses:
            note = f" ({pause.note})" if pause.note else ""
            held = "it gets no new jobs" if pause.scope == "engine" else "none of its jobs is dispatched"
            says = f"{pause.scope} {pause.name} is paused by {pause.paused_by}{note}: {held}"
            yield Diagnosis("queue", Level.WARNING, says, f"run `{pause.resume_command}`")
        yield from _unserved(status)
        if leases := status["running"].expired_leases:
            words = "lease has expired: its worker" if leases == 1 else "leases have expired: their worker"
            reaper = connected(engine).get("reaper")
            with engine.connect() as connection:
                expired = float(connection.execute(statement("admin/expired_lease")).scalar_one())
            says, fix = _why_not_reaped(reaper, expired, settings)
            yield Diagnosis("queue", Level.WARNING, f"{leases:,} {words} died or hangs, {says}", fix)


def _unserved(status: QueueStatus) -> Iterator[Diagnosis]:
    aliases = status.unserved_aliases
    for model, jobs in status.unserved.items():
        named = f"{model}, an alias of {aliases[model]}" if model in aliases else f"the model {model}"
        says = f"{_wait(jobs)} for {named}, which no engine serves"
        started = aliases.get(model, "that model")
        adapter = f"load it as an adapter (`thothy adapters load {aliases.get(model, model)}=FOLDER`)"
        fix = f"start an engine with {started}, {adapter}, or run `thothy models alias {model} OTHER_MODEL`"
        yield Diagnosis("queue", Level.WARNING, says, fix)
    if status.unserved_others:
        says = f"{_wait(status.unserved_others)} for other models that no engine serves"
        fix = "start engines with the models above, or give them an alias: the next names are then shown here"
        yield Diagnosis("queue", Level.WARNING, says, fix)


def _wait(jobs: int) -> str:
    return f"{jobs:,} {'job waits' if jobs == 1 else 'jobs wait'}"


def _why_not_reaped(reaper: Connected | None, expired: float, settings: Settings) -> tuple[str, str]:
    """Why jobs whose lease expired `expired` seconds ago still wait for the reaper, and what to do."""
    if reaper is None or not reaper.leads:
        return "and no reaper takes the jobs back", "start one: `thothy reaper`"
    if reaper.led_seconds < settings.lease_seconds:
        grace = f"and the reaper, which has just started, gives live workers {settings.lease_seconds:g} s to report"
        return grace, WAIT
    if expired < settings.reap_interval_seconds + LATE_SECONDS:
        return "and the reaper will soon take the jobs back", WAIT
    return f"and the reaper has not taken the jobs back for {expired:,.0f} s", "look at its log, and restart the reaper"
