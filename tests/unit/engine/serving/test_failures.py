"""What a failed request took is told to its client, or reported if nobody may have recorded it."""

from __future__ import annotations

import pytest

from tests.support.scripted_backend import ScriptedBackend, ask, run_in_loop
from thothy_ai.engine.api import Usage
from thothy_ai.engine.api.backend import Failure
from thothy_ai.engine.api.errors import GrammarError
from thothy_ai.engine.serving.client import EngineClient, LocalEngineClient, connect
from thothy_ai.engine.serving.server import EngineServer

USAGE = Usage(7, 2, 3, 0.5)


@pytest.mark.parametrize("local", [False, True])
def test_a_failure_tells_what_it_took(url: str, *, local: bool) -> None:
    async def body() -> None:
        backend = ScriptedBackend()
        server = EngineServer(backend, url)
        await server.start()
        client: EngineClient = LocalEngineClient(backend) if local else connect(url)
        await client.start()
        generation = await client.submit(ask("a"))
        assert generation.usage is None
        name = await backend.arrived.get()
        backend.say(name, Failure(name, GrammarError("grew too complex"), USAGE))
        with pytest.raises(GrammarError):
            await generation.result()
        assert generation.usage == USAGE
        await client.close()
        await server.close()

    run_in_loop(body())


def test_a_failure_that_a_vanished_client_may_not_have_recorded_is_reported(url: str) -> None:
    async def body() -> None:
        backend = ScriptedBackend()
        server = EngineServer(backend, url)
        await server.start()
        leaver, stayer = connect(url), connect(url)
        await leaver.start()
        await stayer.start()
        told, _ = [await leaver.submit(ask(id_)) for id_ in ("told", "cut")]
        names = [await backend.arrived.get() for _ in range(2)]
        backend.say(names[0], Failure(names[0], GrammarError("grew"), USAGE))
        with pytest.raises(GrammarError):
            await told.result()
        await leaver.close()
        assert await backend.aborted.get() == names[1]
        backend.say(names[1], Failure(names[1], GrammarError("grew"), USAGE))
        kept = []
        while len(kept) < 2:
            kept += (await stayer.take_abandoned_usage()).requests
        assert {request.id for request in kept} == {"told", "cut"}
        await stayer.close()
        await server.close()

    run_in_loop(body())
