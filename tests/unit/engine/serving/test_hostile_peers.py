"""Clients and servers that break the protocol, and requests that cannot be sent."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.scripted_backend import answer, raw, run_in_loop, until
from tests.support.travelled import submit_of
from thothy_ai.engine.api import GenerationRequest
from thothy_ai.engine.api.backend import Failure
from thothy_ai.engine.api.errors import EngineLostError, InvalidRequestError, ProtocolError
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.engine.serving.client import connect
from thothy_ai.engine.serving.server import EngineServer
from thothy_ai.engine.wire.codec import FrameBuffer
from thothy_ai.engine.wire.protocol import Abort, Fault, Hello, decode, encode


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "limit"),
        (encode(Abort("a")), "hello"),
        (encode(Hello(99)), "version 99"),
        (encode(Hello()) + b"\x00\x00\x00\x03\xc1bc", "msgpack"),
        (encode(Hello()) + encode(Hello()), "Hello"),
        (encode(Hello()) + encode(submit_of("a", text="x")) * 2, "in flight"),
    ],
)
def test_a_client_that_breaks_the_protocol_is_told_and_left(url: str, data: bytes, complaint: str) -> None:
    async def body() -> None:
        backend = NullEngine(latency=3600.0)
        server = EngineServer(backend, url)
        await server.start()
        good = connect(url)
        await good.start()
        reader, writer = await raw(url)
        writer.write(data)
        frames = await answer(reader)
        assert isinstance(frames[-1], Fault)
        assert isinstance(frames[-1].error, ProtocolError)
        assert complaint in str(frames[-1].error)
        writer.close()
        assert (await good.info()).model == "null", "the others go on"
        await until(lambda: backend.stats().scheduler.running == 0)
        await good.close()
        await server.close()
        backend.stop()

    run_in_loop(body())


def test_a_malformed_request_fails_alone(url: str) -> None:
    async def body() -> None:
        server = EngineServer(NullEngine(), url)
        await server.start()
        reader, writer = await raw(url)
        bad = submit_of("bad", text="x", sampling={"temperature": "hot"})
        writer.write(encode(Hello()) + encode(bad) + encode(submit_of("good", text="x")))
        buffer, outputs = FrameBuffer(), []
        while len(outputs) < 2:
            for payload in buffer.feed(await reader.read(1 << 16)):
                outputs += getattr(decode(payload), "outputs", ())
        assert isinstance(outputs[0], Failure)
        assert isinstance(outputs[0].error, InvalidRequestError)
        assert outputs[1].id == "good"
        writer.close()
        await server.close()

    run_in_loop(body())


@pytest.mark.parametrize("hello", [encode(Hello(99)), encode(Fault(ProtocolError("no"))), b"HTTP/1.1 400\r\n"])
def test_a_server_that_is_no_engine_of_ours_is_not_connected_to(url: str, hello: bytes) -> None:
    async def body() -> None:
        async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(hello)
            await reader.read()
            writer.close()

        server = await asyncio.start_unix_server(stranger, url.removeprefix("unix://"))
        client = connect(url)
        await client.start()
        assert not client.connected
        with pytest.raises(EngineLostError, match="not connected"):
            await client.info()
        await client.close()
        server.close()

    run_in_loop(body())


def test_what_can_not_be_sent_is_the_requests_own_fault(url: str) -> None:
    async def body() -> None:
        server = EngineServer(NullEngine(), url)
        await server.start()
        client = connect(url)
        await client.start()
        with pytest.raises(InvalidRequestError, match="packed"):
            await client.submit(GenerationRequest("a", token_ids=(2**70,)))
        assert client.connected
        with pytest.raises(InvalidRequestError, match="surrogates not allowed"):
            await client.submit(GenerationRequest("a", text="\ud800"))
        assert (await (await client.submit(GenerationRequest("a", text="x"))).result()).id == "a"
        await client.close()
        await server.close()

    run_in_loop(body())
