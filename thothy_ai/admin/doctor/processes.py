"""Checks of the processes: Celery's settings, the engine, and which processes are connected and lead."""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from thothy_ai.admin.doctor.diagnosis import Diagnosis, Level
from thothy_ai.admin.doctor.stores import postgres_engine
from thothy_ai.admin.engines import STILL_SECONDS, engine_state, stands_still
from thothy_ai.admin.processes import connected
from thothy_ai.engine.api import EngineInfo
from thothy_ai.engine.api.errors import EngineLostError
from thothy_ai.foreign import declared_by, is_foreign
from thothy_ai.settings import Settings

if TYPE_CHECKING:
    from thothy_ai.foreign.abilities import Abilities

FULL = 0.95
HANGS = "if it goes on, restart the engine; its log may say why, and it ends by itself after --stall-seconds"
SERVER_SECONDS = 120.0  # for a server over HTTP to show what it can do
QUIET_SECONDS = 60  # a process that has not used Postgres for this long hangs
CELERY_NEEDS = {
    "task_acks_late": True,
    "worker_prefetch_multiplier": 1,
    "task_ignore_result": True,
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "task_serializer": "json",
}


def celery(settings: Settings) -> Iterator[Diagnosis]:
    """Whether Celery has the version and settings without which work is lost."""
    found = {name: importlib.metadata.version(name) for name in ("celery", "kombu")}
    says = ", ".join(f"{name} {version}" for name, version in found.items())
    if any(version.split(".")[:2] != ["5", "7"] for version in found.values()):
        yield Diagnosis("celery", Level.WRONG, f"{says}; 5.7 is needed", "pip install 'celery==5.7.*' 'kombu==5.7.*'")
        return
    from thothy_ai.queue.app import VISIBILITY_TIMEOUT, configuration  # noqa: PLC0415 - Celery is slow to import

    used = configuration(settings)
    wrong = {name: used.get(name) for name, value in CELERY_NEEDS.items() if used.get(name) != value}
    for name, value in wrong.items():
        says = f"{name} is {value!r}, and must be {CELERY_NEEDS[name]!r}"
        yield Diagnosis("celery", Level.WRONG, says, "install this version of Thothy AI again")
    deadline = settings.shutdown_deadline_seconds
    if deadline >= VISIBILITY_TIMEOUT:
        late = f"a worker may take {deadline:g} s to shut down, but its messages come back after {VISIBILITY_TIMEOUT} s"
        yield Diagnosis("celery", Level.WRONG, late, f"set THOTHY_SHUTDOWN_DEADLINE_SECONDS below {VISIBILITY_TIMEOUT}")
    elif not wrong:
        yield Diagnosis("celery", Level.OK, f"{says}; the settings are correct")


def engine(settings: Settings) -> Iterator[Diagnosis]:
    url = settings.require_engine_url()
    if is_foreign(url):
        yield from _server(settings, url)
        return
    info, stats = asyncio.run(engine_state(url, settings.reveal_engine_token()))
    load = (
        f"{stats.scheduler.running} running, {stats.scheduler.waiting} waiting, "
        f"{stats.blocks.used:,} of {stats.blocks.total:,} KV blocks in use"
    )
    if asyncio.run(stands_still(url, settings.reveal_engine_token())):
        says = f"{info.model} on {info.device} at {url} has finished no step for {STILL_SECONDS:g} s: {load}"
        yield Diagnosis("engine", Level.WRONG, says, HANGS)
        return
    yield Diagnosis("engine", Level.OK, f"{info.model} on {info.device} at {url}: {load}")
    if stats.memory.total_bytes and stats.memory.used_bytes > FULL * stats.memory.total_bytes:
        says = f"{stats.memory.used_bytes / stats.memory.total_bytes:.0%} of the device's memory is in use"
        fix = "move other processes off the device, or start the engine with a smaller KV pool"
        yield Diagnosis("engine", Level.WARNING, says, fix)


def _server(settings: Settings, url: str) -> Iterator[Diagnosis]:
    """A server over HTTP: whether it answers, and what it cannot do."""
    from thothy_ai.foreign.client import ForeignEngineClient  # noqa: PLC0415 - needs httptools

    async def asked() -> tuple[EngineInfo, Abilities]:
        client = ForeignEngineClient(url, settings.reveal_engine_token(), declared_by(settings))
        try:
            async with asyncio.timeout(SERVER_SECONDS):
                return await client.info(), await client.abilities()
        except TimeoutError:
            raise EngineLostError(f"{url} did not say within {SERVER_SECONDS:g} s what it can do") from None
        finally:
            await client.close()

    info, can = asyncio.run(asked())
    where = f"{info.model} as {info.model_name} on {info.device}, with a context of {info.max_context:,} tokens"
    yield Diagnosis("engine", Level.OK, f"{where}; schemas go out as {can.schema.value}, priorities not at all")
    for lack in can.lacks:
        yield Diagnosis("engine", Level.WARNING, f"{url} lacks {lack}")


def process(name: str, *, leads: bool) -> Callable[[Settings], Iterator[Diagnosis]]:
    """A check that a process of this name is connected; with `leads`, that one of them leads."""

    def check(settings: Settings) -> Iterator[Diagnosis]:
        with postgres_engine(settings) as engine:
            found = connected(engine).get(name)
        if found is None:
            yield Diagnosis(name, Level.WRONG, f"no {name} is connected to Postgres", f"start it: `thothy {name}`")
        elif leads and not found.leads:
            says = f"a {name} is connected, but none leads, so none works"
            yield Diagnosis(name, Level.WRONG, says, f"restart the {name}")
        elif leads and found.quiet_seconds > QUIET_SECONDS:
            says = f"the {name} hangs: it has been silent for {found.quiet_seconds:.0f} s"
            yield Diagnosis(name, Level.WRONG, says, f"restart the {name}")
        else:
            does = "leads" if leads else "is connected"
            yield Diagnosis(name, Level.OK, f"{does}, last seen {found.quiet_seconds:.0f} s ago")

    return check
