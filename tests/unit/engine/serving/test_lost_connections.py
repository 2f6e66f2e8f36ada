"""Clients that vanish, engines that are lost or away, and what is in flight meanwhile."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.support.patience import PATIENCE
from tests.support.scripted_backend import ScriptedBackend, ask, result_of, run_in_loop, until
from thothy_ai.engine.api import FinishReason, GenerationRequest
from thothy_ai.engine.api.errors import EngineLostError, EngineStoppedError
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.engine.serving import connection
from thothy_ai.engine.serving.client import connect
from thothy_ai.engine.serving.server import EngineServer
from thothy_ai.engine.wire.codec import FrameBuffer
from thothy_ai.engine.wire.protocol import Abort, Hello, Submit, decode, encode


def test_a_vanished_client_takes_its_requests_along_and_no_others(url: str) -> None:
    async def body() -> None:
        backend = ScriptedBackend()
        server = EngineServer(backend, url)
        await server.start()
        stays, goes = connect(url), connect(url)
        await stays.start()
        await goes.start()
        kept = await stays.submit(ask("same"))
        kept_id = await backend.arrived.get()
        await goes.submit(ask("same"))
        gone_id = await backend.arrived.get()
        assert kept_id != gone_id, "ids belong to a connection"
        await goes.close()
        assert await backend.aborted.get() == gone_id
        backend.say(gone_id, result_of(gone_id))
        backend.say(kept_id, result_of(kept_id, "text"))
        assert await kept.result() == result_of("same", "text")
        assert backend.aborted.empty()
        await stays.close()
        await server.close()

    run_in_loop(body())


def test_a_lost_engine_is_told_and_a_new_one_is_found(url: str) -> None:
    async def body() -> None:
        old = NullEngine(latency=3600.0)
        server = EngineServer(old, url)
        await server.start()
        client = connect(url)
        await client.start()
        session = (await client.info()).session_id
        waiting = await client.submit(ask("a", stream=True))
        await server.close()
        with pytest.raises(EngineLostError):
            await waiting.result()
        with pytest.raises(EngineLostError):
            [delta async for delta in waiting]
        await until(lambda: not client.connected)
        with pytest.raises(EngineLostError, match=r"e\.sock"):
            await client.info()
        new = EngineServer(NullEngine(), url)
        await new.start()
        await until(lambda: client.connected)
        assert (await client.info()).session_id != session
        assert (await (await client.submit(ask("a"))).result()).finish_reason is FinishReason.STOP
        await client.close()
        await new.close()
        old.stop()

    run_in_loop(body())


def test_a_question_in_flight_ends_with_the_connection(url: str) -> None:
    async def body() -> None:
        async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(encode(Hello()))
            await reader.readexactly(len(encode(Hello())) + 1)
            writer.close()

        server = await asyncio.start_unix_server(mute, url.removeprefix("unix://"))
        client = connect(url)
        await client.start()
        with pytest.raises(EngineLostError, match="closed"):
            await client.stats()
        await client.close()
        server.close()

    run_in_loop(body())


def test_a_submit_that_is_cancelled_while_the_engine_does_not_read_leaves_nothing_running(url: str) -> None:
    async def body() -> None:
        reads = asyncio.Event()
        frames: asyncio.Queue[object] = asyncio.Queue()

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(encode(Hello()))
            await reads.wait()
            buffer = FrameBuffer()
            while chunk := await reader.read(1 << 16):
                for payload in buffer.feed(chunk):
                    frames.put_nowait(decode(payload))
            writer.close()

        server = await asyncio.start_unix_server(slow, url.removeprefix("unix://"))
        client = connect(url)
        await client.start()
        submitting = asyncio.create_task(client.submit(GenerationRequest("a", text="x" * (1 << 22))))
        await asyncio.wait([submitting], timeout=0.1)
        assert not submitting.done()
        submitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await submitting
        reads.set()
        assert [type(await frames.get()) for _ in range(3)] == [Hello, Submit, Abort]
        await client.close()
        server.close()

    run_in_loop(body())


def test_start_does_not_fail_while_the_engine_is_away(url: str) -> None:
    async def body() -> None:
        client = connect(url)
        await client.start()
        assert not client.connected
        with pytest.raises(EngineLostError, match="not connected"):
            await client.stats()
        server = EngineServer(NullEngine(), url)
        await server.start()
        await until(lambda: client.connected)
        await client.close()
        await server.close()

    run_in_loop(body())


@pytest.mark.parametrize("closes", [True, False])
def test_a_lost_connection_is_told_before_its_requests_fail(url: str, *, closes: bool) -> None:
    async def body() -> None:
        backend = NullEngine(latency=3600.0)
        server = EngineServer(backend, url)
        await server.start()
        client = connect(url)
        await client.start()
        generation = await client.submit(ask("a"))
        in_flight: list[tuple[str, ...]] = []
        client.on_lost = lambda: in_flight.append(client._generations.open_ids)
        if closes:
            await client.close()
        else:
            client._writer.transport.abort()
        with pytest.raises(EngineLostError):
            await generation.result()
        assert in_flight == [("a",)]
        await client.close()
        await server.close()
        backend.stop()

    run_in_loop(body())


def test_what_an_engine_says_last_also_reaches_a_client_that_writes_before_it_reads(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write to a socket that the other side has closed fails, and asyncio then discards what was received."""
    started, stopping, closing = threading.Event(), threading.Event(), threading.Event()
    for limit in ("_TIMEOUT_SECONDS", "_LINGER_SECONDS"):
        monkeypatch.setattr(connection, limit, PATIENCE)

    async def engine() -> None:
        backend = NullEngine(latency=3600.0)
        server = EngineServer(backend, url)
        await server.start()
        started.set()
        await asyncio.to_thread(stopping.wait)
        backend.stop()
        await server.wait_settled()
        closed = asyncio.create_task(server.close())
        await asyncio.sleep(0.1)  # it has closed, or waits for its client
        closing.set()
        await closed

    async def body() -> None:
        client = connect(url)
        await client.start()
        generations = [await client.submit(ask(str(number))) for number in range(100)]
        assert (await client.stats()).scheduler.running == 100
        _await_busily(stopping, closing)
        asking = asyncio.ensure_future(client.stats())
        for generation in generations:
            with pytest.raises(EngineStoppedError):
                await generation.result()
        with pytest.raises(EngineLostError):
            await asking
        await client.close()

    thread = threading.Thread(target=run_in_loop, args=(engine(),))
    thread.start()
    try:
        assert started.wait(PATIENCE)
        run_in_loop(body())
    finally:
        stopping.set()
        thread.join(PATIENCE)
    assert not thread.is_alive()


def _await_busily(stopping: threading.Event, closing: threading.Event) -> None:
    """Have the engine stop, while the client's loop does nothing else."""
    stopping.set()
    assert closing.wait(PATIENCE)
