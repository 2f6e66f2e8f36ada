"""The usage of a failed request reaches its client, or is reported; an output that no frame carries fails alone."""

from __future__ import annotations

import pytest

from tests.support.local_client import LocalEngineClient
from tests.support.scripted_backend import ScriptedBackend, ask, result_of, run_in_loop
from thothy_ai.engine.api import Delta, Usage
from thothy_ai.engine.api.backend import Failure
from thothy_ai.engine.api.errors import EngineError, GrammarError
from thothy_ai.engine.serving.client import EngineClient, connect
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


def test_a_character_that_no_frame_carries_is_escaped_and_ends_no_connection(url: str) -> None:
    async def body() -> None:
        backend = ScriptedBackend()
        server = EngineServer(backend, url)
        await server.start()
        client = connect(url)
        await client.start()
        odd, other = [await client.submit(ask(id_, stream=True)) for id_ in ("odd", "other")]
        names = [await backend.arrived.get() for _ in range(2)]
        backend.say(names[0], Delta(names[0], "a \ud800 b", (1, 2, 3)), result_of(names[0], "a \ud800 b"))
        backend.say(names[1], Delta(names[1], "fine", (1,)), result_of(names[1], "fine"))
        assert "".join([delta.text async for delta in other]) == "fine"
        assert (await other.result()).text == "fine"
        with pytest.raises(EngineError, match="cannot be sent"):
            await odd.result()
        await client.close()
        await server.close()

    run_in_loop(body())
