"""Adapters of the queue's engines: lists which engine has which, and loads and unloads them on this machine's engines.

Engines register their adapters (`worker/registration`), and jobs are routed by these records. The engine itself reads
an adapter's folder, which therefore has to be on its machine.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Engine

from thothy_ai.admin.engines import EngineStatus, engines, silence_client
from thothy_ai.admin.model_aliases import list_aliases
from thothy_ai.engine.api import AdapterInfo
from thothy_ai.engine.api.errors import EngineError, EngineLostError
from thothy_ai.engine.api.identity import printable
from thothy_ai.engine.serving.client import EngineClient, connect
from thothy_ai.errors import AdapterNameError
from thothy_ai.foreign import is_foreign
from thothy_ai.queue.control import WAKE_DISPATCHER
from thothy_ai.settings import Settings

CONNECT_SECONDS = 5.0
LOAD_SECONDS = 600.0  # long, because the first adapter on a GPU has graphs captured
SLOW_SECONDS = 2.0  # before a load is reported as slow
REGISTER_SECONDS = 10.0  # for an engine's registrar, which asks the engine every 2 s
LOOK_SECONDS = 0.1  # between two looks at the records
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AdapterStatus:
    """An adapter on one or more engines, with the same name, weights and model.

    While its engines load, and on a server over HTTP, `digest` is empty, and `rank` and `num_bytes` are 0.
    """

    name: str
    model: str
    digest: str
    rank: int
    num_bytes: int
    activated: bool
    engines: tuple[str, ...]


def list_adapters(database: Engine) -> list[AdapterStatus]:
    """The adapters of all live engines, by name."""
    return grouped(engines(database))


def grouped(running: Sequence[EngineStatus]) -> list[AdapterStatus]:
    """The adapters of these engines, by name."""
    found: defaultdict[tuple[str, str, str, int, int, bool], list[str]] = defaultdict(list)
    for engine in running:
        for name, has in engine.adapters.items() if engine.lives else ():
            described = (
                has.get("digest", ""),
                has.get("rank", 0),
                has.get("num_bytes", 0),
                has.get("activated", False),
            )
            found[name, engine.model_name, *described].append(engine.name)
    return [AdapterStatus(*described, tuple(names)) for described, names in sorted(found.items())]


def conflicts(running: Sequence[EngineStatus], aliases: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Sentences about ambiguous adapter names, each with its remedy."""
    adapters = grouped(running)
    models = {engine.model_name for engine in running if engine.lives}
    for name in dict.fromkeys(each.name for each in adapters):
        same = [each for each in adapters if each.name == name]
        where = "; ".join(f"{each.digest[:12] or 'unknown'} on {', '.join(each.engines)}" for each in same)
        again = "load the same folder on all of them: `thothy adapters load`"
        if len(bases := sorted({each.model for each in same})) > 1:
            says = f"{name} is an adapter of {' and of '.join(bases)}: jobs that name it run on either"
            yield says, f"unload one of them: `thothy adapters unload {name} --model {bases[-1]}`"
        elif len({each.digest for each in same if each.digest}) > 1:
            yield f"engines have different weights as the adapter {name} ({where})", again
        if name in aliases:
            says = f"the adapter {name} gets no jobs: {name} is an alias of {aliases[name]}"
            yield says, f"run `thothy models unalias {name}`, or load the adapter under another name"
        elif name in models:
            yield f"{name} is an adapter and a model: jobs that name it run on either", "load it under another name"


def check_name(database: Engine, name: str, model: str) -> None:
    """Raise `AdapterNameError` unless an adapter of this model can have this name."""
    aliases = {each.alias: each.model_name for each in list_aliases(database)}
    if name in aliases:
        says = f"{name} is an alias of {aliases[name]}: choose another name, or run `thothy models unalias {name}`"
        raise AdapterNameError(says)
    for engine in (each for each in engines(database) if each.lives):
        if engine.model_name == name:
            raise AdapterNameError(f"{name} is the model of engine {engine.name}: choose another name")
        if name in engine.adapters and engine.model_name != model:
            says = f"{name} is an adapter of {engine.model_name} on engine {engine.name}: choose another name"
            raise AdapterNameError(says)


def engines_here(database: Engine, model: str | None = None, *, state: str = "ready") -> list[EngineStatus]:
    """The engines of this machine in this state, for one model or for all."""
    machine = printable(socket.gethostname())
    return [
        each
        for each in engines(database)
        if each.state == state and each.machine == machine and model in {None, each.model_name}
    ]


def load(
    settings: Settings, engine: EngineStatus, name: str, folder: Path, slow: Callable[[], None] = lambda: None
) -> AdapterInfo:
    """Have an engine of this machine load or replace an adapter. `slow` is called if that takes a while.

    Raises `EngineError` if the engine refuses.
    """

    path = str(folder.absolute())

    async def ask(client: EngineClient) -> AdapterInfo:
        timer = asyncio.get_running_loop().call_later(SLOW_SECONDS, slow)
        try:
            return await client.load_adapter(name, path)
        finally:
            timer.cancel()

    return asyncio.run(_asked(engine, settings, ask))


def unload(settings: Settings, engine: EngineStatus, name: str) -> None:
    """Have an engine of this machine unload an adapter. Requests that it has accepted still finish.

    Raises `EngineError` if the engine refuses.
    """
    asyncio.run(_asked(engine, settings, lambda client: client.unload_adapter(name)))


def await_registration(database: Engine, engine: EngineStatus, loaded: Mapping[str, str], unloaded: str = "") -> bool:
    """Wait until jobs are routed by the `loaded` adapters (digests by name), and no longer by `unloaded`.

    Registrars ask engines every 2 s. Returns False after `REGISTER_SECONDS`, as when the registrar cannot reach
    Postgres.
    """
    until, recorded = time.monotonic() + REGISTER_SECONDS, False
    while not recorded and time.monotonic() < until:
        has = next((each.adapters for each in engines(database) if each.id == engine.id), {})
        recorded = unloaded not in has and all(
            has.get(name, {}).get("digest") == digest for name, digest in loaded.items()
        )
        if not recorded:
            time.sleep(LOOK_SECONDS)
    with database.begin() as connection:
        connection.execute(WAKE_DISPATCHER)
    return recorded


async def _asked(engine: EngineStatus, settings: Settings, ask: Callable[[EngineClient], Awaitable[T]]) -> T:
    if is_foreign(engine.address):
        raise EngineError(f"{engine.address} loads its adapters itself")
    silence_client()
    tokens = settings.reveal_engine_tokens()
    client = connect(engine.address, tokens.get(engine.name, settings.reveal_engine_token()))
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await client.start()
            await client.info()
        async with asyncio.timeout(LOAD_SECONDS):
            return await ask(client)
    except TimeoutError:
        raise EngineLostError(f"the engine at {engine.address} did not answer") from None
    finally:
        await client.close()
