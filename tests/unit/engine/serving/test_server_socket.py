"""The server's socket file, a client process that is killed, and answers that are still on their way."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE
from tests.support.scripted_backend import ScriptedBackend, ask, mode_of, raw, result_of, run_in_loop, until
from tests.support.travelled import submit_of
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.engine.serving import connection
from thothy_ai.engine.serving.client import connect
from thothy_ai.engine.serving.server import EngineServer
from thothy_ai.engine.wire.codec import FrameBuffer
from thothy_ai.engine.wire.protocol import Hello, Outputs, decode, encode


def test_the_socket_is_its_owners_and_a_leftover_is_replaced(url: str) -> None:
    path = Path(url.removeprefix("unix://"))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))

    async def body() -> None:
        server = EngineServer(NullEngine(), url)
        await server.start()
        assert mode_of(path) == 0o600
        second = EngineServer(NullEngine(), url)
        with pytest.raises(InvalidRequestError, match="in use"):
            await second.start()
        await second.close()
        assert mode_of(path) == 0o600, "a server that never listened removes nothing"
        await server.close()
        assert mode_of(path) is None

    run_in_loop(body())


def test_a_file_in_the_way_is_not_removed(url: str) -> None:
    path = Path(url.removeprefix("unix://"))
    path.write_text("mine")

    async def body() -> None:
        with pytest.raises(InvalidRequestError, match="listen"):
            await EngineServer(NullEngine(), url).start()

    run_in_loop(body())
    assert path.read_text() == "mine"


def test_a_killed_client_process_is_noticed(url: str) -> None:
    code = f"""
import asyncio, sys
from tests.support.travelled import submit_of
from thothy_ai.engine.api import GenerationRequest
from thothy_ai.engine.serving.client import connect
async def main():
    client = connect({url!r})
    await client.start()
    await client.submit(GenerationRequest("a", text="x"))
    await client.stats()
    print("sent", flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""

    async def body() -> None:
        backend = NullEngine(latency=3600.0)
        server = EngineServer(backend, url)
        await server.start()
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert await child.stdout.readline() == b"sent\n"
        assert backend.stats().scheduler.running == 1
        child.kill()
        await child.wait()
        await until(lambda: backend.stats().core.requests_aborted == 1)
        await server.wait_settled()
        await server.close()
        backend.stop()

    run_in_loop(body())


def test_wait_settled_waits_for_answers_to_leave(url: str) -> None:
    async def body() -> None:
        backend = ScriptedBackend()
        server = EngineServer(backend, url)
        await server.start()
        await server.wait_settled()
        client = connect(url)
        await client.start()
        generation = await client.submit(ask("a"))
        id_ = await backend.arrived.get()
        waiting: Awaitable[None] = asyncio.ensure_future(server.wait_settled())
        assert not waiting.done()
        backend.say(id_, result_of(id_))
        await waiting
        await server.close()
        assert await generation.result() == result_of("a"), "what was sent arrives, also when the server closes at once"
        await client.close()

    run_in_loop(body())


def test_wait_settled_waits_for_a_client_that_reads_slowly(url: str) -> None:
    async def body() -> None:
        backend = ScriptedBackend()
        server = EngineServer(backend, url)
        await server.start()
        reader, writer = await raw(url)
        ids = [str(number) for number in range(200)]
        writer.write(encode(Hello()) + b"".join(encode(submit_of(id_, text="x")) for id_ in ids))
        for id_ in [await backend.arrived.get() for _ in ids]:
            backend.say(id_, result_of(id_, "x" * 20_000))
        await until(lambda: not server.in_flight)
        await asyncio.sleep(0.1)  # it is being sent
        waiting = asyncio.ensure_future(server.wait_settled())
        await asyncio.wait([waiting], timeout=0.2)
        assert not waiting.done(), "a socket does not hold so much"
        buffer, told = FrameBuffer(), list[str]()
        while len(told) < len(ids) and (chunk := await reader.read(1 << 16)):
            frames = [decode(payload) for payload in buffer.feed(chunk)]
            told += [output.id for frame in frames if isinstance(frame, Outputs) for output in frame.outputs]
        await waiting
        assert told == ids
        writer.close()
        await server.close()

    run_in_loop(body())


def test_a_client_that_never_closes_does_not_keep_a_server_from_closing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        server = EngineServer(NullEngine(), url)
        await server.start()
        reader, writer = await raw(url)
        writer.write(encode(Hello()))
        assert await reader.readexactly(len(encode(Hello()))) == encode(Hello())
        monkeypatch.setattr(connection, "_LINGER_SECONDS", 0.1)
        await server.close()
        assert await reader.read() == b""
        writer.close()

    run_in_loop(body())


def test_a_server_that_closes_does_not_keep_its_clients_waiting(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        server = EngineServer(NullEngine(), url)
        await server.start()
        client = connect(url)
        await client.start()
        for limit in ("_TIMEOUT_SECONDS", "_LINGER_SECONDS"):
            monkeypatch.setattr(connection, limit, 10 * PATIENCE)
        await server.close()
        await until(lambda: not client.connected)
        await client.close()

    run_in_loop(body())
