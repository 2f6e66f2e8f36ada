"""A client looks at the text of a request in flight: once, again as it grows, as a stream."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.support.local_client import LocalEngineClient
from tests.support.scripted_backend import ScriptedBackend, ask, result_of, run_in_loop
from thothy_ai.engine.api import Delta, FinishReason, Usage
from thothy_ai.engine.api.backend import Failure
from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.serving.client import EngineClient, connect
from thothy_ai.engine.serving.server import EngineServer


@pytest.mark.parametrize("local", [False, True])
def test_a_client_looks_at_the_text_early_and_aborts_with_its_usage(url: str, *, local: bool) -> None:
    async def body() -> None:
        backend = ScriptedBackend()
        server = EngineServer(backend, url)
        await server.start()
        client: EngineClient = LocalEngineClient(backend) if local else connect(url)
        await client.start()
        generation = await client.submit(ask("a", report_after=3))
        early = asyncio.create_task(generation.early_text())
        id_ = await backend.arrived.get()
        backend.say(id_, Delta(id_, "so ", (1, 2)))
        await asyncio.sleep(0)
        assert not early.done()
        backend.say(id_, Delta(id_, "far", (3,)))
        assert await early == await generation.early_text() == "so far"
        await generation.abort()
        assert await backend.aborted.get() == id_
        backend.say(id_, replace(result_of(id_, "so far, so good", FinishReason.ABORTED), usage=Usage(5, 2, 9, 0.5)))
        assert (await generation.result()).usage == generation.usage == Usage(5, 2, 9, 0.5)
        assert [delta.text async for delta in generation] == ["so ", "far"]
        await client.close()
        await server.close()

    run_in_loop(body())


def test_a_client_looks_at_the_text_again_as_it_grows(url: str) -> None:
    async def body() -> None:
        backend = ScriptedBackend()
        client = LocalEngineClient(backend)
        await client.start()
        once = await client.submit(ask("once", report_after=3))
        again = await client.submit(ask("again", report_after=3, report_again=True))
        for id_ in ("once", "again"):
            backend.say(id_, Delta(id_, "so far", (1, 2, 3)))
        assert await again.early_text() == await once.early_text() == "so far"
        longer, end = (asyncio.create_task(each.text_beyond(6)) for each in (again, once))
        await asyncio.sleep(0)
        assert not longer.done()
        for id_ in ("once", "again"):
            backend.say(id_, Delta(id_, ", so", (4, 5)))
        assert await longer == "so far, so"
        assert not end.done()
        for id_ in ("once", "again"):
            backend.say(id_, result_of(id_, "so far, so good"))
        assert await end == await again.text_beyond(10) == "so far, so good"
        await client.close()

    run_in_loop(body())


def test_the_early_text_of_a_request_that_ends_before_is_the_whole_one(url: str) -> None:
    """So it is with an engine that knows no early reports."""

    async def body() -> None:
        backend = ScriptedBackend()
        client = LocalEngineClient(backend)
        await client.start()
        generations = [await client.submit(ask(name, report_after=3)) for name in ("ends", "fails")]
        backend.say("ends", result_of("ends", "all of it"))
        backend.say("fails", Failure("fails", EngineError("it broke")))
        assert await generations[0].early_text() == "all of it"
        with pytest.raises(EngineError, match="it broke"):
            await generations[1].early_text()
        await client.close()

    run_in_loop(body())


@pytest.mark.parametrize("local", [False, True])
def test_a_request_in_flight_can_be_streamed(url: str, *, local: bool) -> None:
    async def body() -> None:
        backend = ScriptedBackend()
        server = EngineServer(backend, url)
        await server.start()
        client: EngineClient = LocalEngineClient(backend) if local else connect(url)
        await client.start()
        generation = await client.submit(ask("a"))
        id_ = await backend.arrived.get()
        await generation.stream()
        assert await backend.streamed.get() == id_
        backend.say(id_, Delta(id_, "so far", ()), result_of(id_, "so far"))
        assert [delta.text async for delta in generation] == ["so far"]
        await generation.stream()  # at its end: nothing is asked
        await client.close()
        await server.close()
        assert backend.streamed.empty()

    run_in_loop(body())
