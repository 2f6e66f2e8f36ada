"""The check of webhooks: whether they can be signed, and which could not be delivered."""

from __future__ import annotations

from collections.abc import Iterator

from thothy_ai.admin import webhooks as admin
from thothy_ai.admin.doctor.diagnosis import Diagnosis, Level
from thothy_ai.admin.doctor.stores import postgres_engine
from thothy_ai.db.statements import statement
from thothy_ai.settings import Settings

FIX = "set THOTHY_WEBHOOK_SECRETS where the reaper runs, to at least 24 random characters, and restart the reaper"


def webhooks(settings: Settings) -> Iterator[Diagnosis]:
    with postgres_engine(settings) as engine, engine.connect() as connection:
        counts = admin.counts(engine)
        asked, untried = connection.execute(statement("admin/webhooks_asked")).one()
    if not asked and not any(counts.values()):
        yield Diagnosis("webhooks", Level.OK, "none was asked for")
        return
    yield Diagnosis("webhooks", Level.OK, ", ".join(f"{number:,} {state}" for state, number in counts.items()))
    if untried:
        waited, them = ("1 webhook has", "it") if untried == 1 else (f"{untried:,} webhooks have", "them")
        says = f"{waited} waited for over a minute, and nothing has tried to send {them}"
        yield Diagnosis("webhooks", Level.WARNING, says, f"{FIX}; its log says more")
    # The secret may be set for the reaper alone, whose webhooks are then delivered.
    elif not settings.reveal_webhook_secrets() and not counts["delivered"]:
        says = "jobs ask for webhooks, and THOTHY_WEBHOOK_SECRETS is not set here: a reaper without it sends none"
        yield Diagnosis("webhooks", Level.WARNING, says, FIX)
    if dead := counts["dead"]:
        says = f"{dead:,} {'webhook' if dead == 1 else 'webhooks'} could not be delivered"
        fix = "`thothy webhooks list --state dead` says why; `thothy webhooks retry --all` sends them again"
        yield Diagnosis("webhooks", Level.WARNING, says, fix)
