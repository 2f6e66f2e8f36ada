"""The check of the fleet: engines that are silent, share a name or have no worker, and workers without an engine."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from redis.exceptions import RedisError

from thothy_ai.admin.adapters import conflicts
from thothy_ai.admin.doctor.diagnosis import Diagnosis, Level
from thothy_ai.admin.doctor.processes import HANGS
from thothy_ai.admin.doctor.stores import postgres_engine
from thothy_ai.admin.engines import RECORDED_SECONDS, EngineStatus, WorkerCounts, recorded_still, workers
from thothy_ai.admin.engines import engines as read_engines
from thothy_ai.admin.model_aliases import list_aliases
from thothy_ai.settings import Settings

GRACE_SECONDS = 15.0  # for a worker to find an engine that has just become ready


def engines(settings: Settings) -> Iterator[Diagnosis]:
    with postgres_engine(settings) as engine:
        found = [each for each in read_engines(engine) if each.name]
    if not found:
        fix = "start engines with THOTHY_DATABASE_URL set, as `thothy up` does"
        yield Diagnosis("engines", Level.WARNING, "no engine has registered itself", fix)
        return
    yield Diagnosis("engines", Level.OK, ", ".join(_named(each) for each in found))
    for each in (each for each in found if each.state == "silent"):
        says = f"engine {each.name} on {each.machine} has been silent for {each.heartbeat_age:,.0f} s"
        yield Diagnosis("engines", Level.WRONG, says, "look at its log and at the reaper's, and start it again")
    live = [each for each in found if each.lives]
    for name, number in Counter(each.name for each in live).items():
        if number > 1:
            where = " and ".join(
                f"{each.address or 'an engine that loads'} on {each.machine}" for each in live if each.name == name
            )
            fix = "give each a THOTHY_ENGINE_NAME of its own, and start them again"
            yield Diagnosis("engines", Level.WRONG, f"{number} engines are named {name}: {where}", fix)
    with postgres_engine(settings) as engine:
        aliases = {each.alias: each.model_name for each in list_aliases(engine)}
    for says, fix in conflicts(live, aliases):
        yield Diagnosis("engines", Level.WARNING, says, fix)
    asked = {each.id for each in live if each.address == settings.engine_url and each.machine == socket.gethostname()}
    with postgres_engine(settings) as engine:
        still = recorded_still(engine, {each.id for each in live} - asked)  # the check of the engine has asked those
    for each in still:
        jobs = "1 job that runs" if each.running == 1 else f"{each.running:,} jobs that run"
        says = f"engine {each.name} on {each.machine} has {jobs}, and has computed nothing for {RECORDED_SECONDS:g} s"
        yield Diagnosis("engines", Level.WRONG, says, HANGS)
    with suppress(RedisError):  # the check of Redis reports it
        yield from _workers(found, workers(settings, sorted({each.name for each in found})))


def _named(each: EngineStatus) -> str:
    number = len(each.adapters)
    adapters = f" with {number:,} {'adapter' if number == 1 else 'adapters'}" if number else ""
    return f"{each.name} ({each.model_name}{adapters}) {each.state}"


def _workers(found: Sequence[EngineStatus], connected: WorkerCounts) -> Iterator[Diagnosis]:
    """Engines that have been ready for a while without a worker, and workers without an engine."""
    for each in found:
        if each.state == "ready" and not _awaited(each) and not connected.serving[each.name]:
            fix = f"start one on {each.machine}: `THOTHY_ENGINE_URL={each.address} thothy worker`"
            yield Diagnosis("engines", Level.WRONG, f"no worker serves engine {each.name} on {each.machine}", fix)
    soon = sum(_awaited(each) and not connected.serving[each.name] for each in found)
    if (number := connected.without_engine - soon) > 0:
        says = "1 worker has no engine here" if number == 1 else f"{number} workers have no engine here"
        yield Diagnosis("engines", Level.WARNING, says, "start an engine at each worker's THOTHY_ENGINE_URL")


def _awaited(each: EngineStatus) -> bool:
    """Whether the engine's worker may not have found it yet."""
    return each.state == "loading" or (each.state == "ready" and each.ready_seconds <= GRACE_SECONDS)
