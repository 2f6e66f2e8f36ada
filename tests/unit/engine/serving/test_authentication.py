"""An engine on a TCP port answers only clients that present its token; on a Unix socket none is needed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from thothy_ai.engine.api import GenerationRequest
from thothy_ai.engine.api.errors import EngineAuthenticationError, EngineLostError, InvalidRequestError
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.engine.serving.client import connect
from thothy_ai.engine.serving.server import EngineServer
from thothy_ai.engine.wire.codec import FrameBuffer
from thothy_ai.engine.wire.protocol import Ask, Fault, Hello, Question, decode, encode

TCP = "tcp://127.0.0.1:0"
TOKEN = "a shared secret \N{SNOWMAN}"


def port_of(server: EngineServer) -> int:
    return int(server.url.rpartition(":")[2])


@pytest.mark.parametrize("token", [None, ""])
def test_a_tcp_engine_without_a_token_is_refused_and_the_variable_named(token: str | None) -> None:
    with pytest.raises(InvalidRequestError, match="THOTHY_ENGINE_TOKEN") as refused:
        EngineServer(NullEngine(), TCP, token)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN.upper(), TOKEN + " ", "\udcff"])
def test_a_wrong_or_missing_token_is_refused_with_a_typed_error(token: str | None) -> None:
    async def body() -> None:
        server = EngineServer(NullEngine(), TCP, TOKEN)
        await server.start()
        client = connect(server.url, token)
        await client.start()
        assert not client.connected
        with pytest.raises(EngineAuthenticationError, match="token"):
            await client.info()
        with pytest.raises(EngineLostError, match="THOTHY_ENGINE_TOKEN"):
            await client.submit(GenerationRequest("a", text="x"))
        await client.close()
        await server.close()

    asyncio.run(body())


def test_the_right_token_is_accepted() -> None:
    async def body() -> None:
        server = EngineServer(NullEngine(), TCP, TOKEN)
        await server.start()
        client = connect(server.url, TOKEN)
        await client.start()
        assert (await client.info()).model == "null"
        await client.close()
        await server.close()

    asyncio.run(body())


def test_nothing_is_answered_before_the_token() -> None:
    """Not even to a client that does not wait for the server's hello."""

    async def body() -> None:
        server = EngineServer(NullEngine(), TCP, TOKEN)
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        writer.write(encode(Hello()) + encode(Ask(1, Question.INFO)))
        [fault] = [decode(payload) for payload in FrameBuffer().feed(await reader.read())]
        assert isinstance(fault, Fault)
        assert isinstance(fault.error, EngineAuthenticationError)
        assert TOKEN not in str(fault.error)
        writer.close()
        await server.close()

    asyncio.run(body())


@pytest.mark.parametrize("token", [None, TOKEN, "another engine's"])
def test_a_client_that_reaches_a_unix_socket_over_tcp_needs_no_token(tmp_path: Path, token: str | None) -> None:
    """Through a proxy, as in a chaos run."""
    path = f"{tmp_path}/e.sock"

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(path)
        await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))

    async def body() -> None:
        server = EngineServer(NullEngine(), f"unix://{path}", TOKEN)
        await server.start()
        proxy = await asyncio.start_server(accept, "127.0.0.1", 0)
        client = connect(f"tcp://127.0.0.1:{proxy.sockets[0].getsockname()[1]}", token)
        await client.start()
        assert (await client.info()).model == "null"
        await client.close()
        proxy.close()
        await server.close()

    asyncio.run(body())


def test_a_hello_carries_the_token_and_does_not_show_it() -> None:
    hello = Hello(1, TOKEN.encode())
    [payload] = FrameBuffer().feed(encode(hello))
    assert decode(payload) == hello
    assert "shared" not in repr(hello)


def test_the_token_is_sent_over_tcp_only(tmp_path: Path) -> None:
    heard: list[Hello] = []

    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(decode(payload) for payload in FrameBuffer().feed(await reader.read(1 << 16)))
        writer.close()

    async def body() -> None:
        unix = await asyncio.start_unix_server(engine, f"{tmp_path}/e.sock")
        tcp = await asyncio.start_server(engine, "127.0.0.1", 0)
        for url in (f"unix://{tmp_path}/e.sock", f"tcp://127.0.0.1:{tcp.sockets[0].getsockname()[1]}"):
            client = connect(url, TOKEN)
            await client.start()
            await client.close()
        for server in (unix, tcp):
            server.close()

    asyncio.run(body())
    assert heard == [Hello(), Hello(token=TOKEN.encode())]
