"""The session of a server over HTTP, which knows no queue: the worker that uses it records it."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress

from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.api.identity import printable
from thothy_ai.engine.serving.client import EngineClient
from thothy_ai.settings import Settings
from thothy_ai.worker.registration.messages import EngineEnded, Ready, Registration
from thothy_ai.worker.registration.registrar import Registrar

PAUSE = 0.5  # before the server is asked again


async def record_server(settings: Settings, client: EngineClient) -> None:
    """Record the session from the server's first answer until this is cancelled, which is its end.

    Raises `NameTakenError` if another worker records one by the same name.
    """
    info = None
    while info is None:
        try:
            info = await client.info()
        except EngineError:
            await asyncio.sleep(PAUSE)
    registrar = Registrar(
        settings,
        Registration(
            session_id=info.session_id,
            engine_name=info.name,
            machine=printable(socket.gethostname()),
            model_name=info.model_name,
            device=info.device,
            devices=(),
            capacity=info.capacity,
            started=time.monotonic(),
        ),
        client,
    )
    registrar.hear(Ready(settings.require_engine_url(), time.monotonic()))
    recording = asyncio.create_task(registrar.run())
    try:
        await asyncio.shield(recording)
    finally:
        core = None
        with suppress(EngineError):  # the server is lost: the last recorded counters stay
            core = (await client.stats()).core
        registrar.hear(EngineEnded.of(0, core))
        await recording
