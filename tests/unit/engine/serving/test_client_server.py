"""Client and server over real sockets, on backends that answer at once or as the test says."""

from __future__ import annotations

import asyncio
import socket
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from thothy_ai.engine.api import (
    Delta,
    EngineInfo,
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Message,
    SamplingParams,
    SchedulerStats,
    Usage,
)
from thothy_ai.engine.backend import Failure, Output, Sink
from thothy_ai.engine.client import EngineClient, LocalEngineClient, connect
from thothy_ai.engine.errors import (
    EngineLostError,
    EngineNotAcceptingError,
    GrammarError,
    InvalidRequestError,
    ProtocolError,
)
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.engine.serving.protocol import Abort, Fault, FrameBuffer, Hello, Submit, decode, encode
from thothy_ai.engine.serving.server import EngineServer

PATIENCE = 30
TOKEN = "a shared secret"


class Puppet:
    """A backend whose answers the test gives by hand; all on the loop's thread."""

    def __init__(self) -> None:
        self.sinks: dict[str, Sink] = {}
        self.arrived: asyncio.Queue[str] = asyncio.Queue()
        self.aborted: asyncio.Queue[str] = asyncio.Queue()

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        self.sinks[request.id] = sink
        self.arrived.put_nowait(request.id)

    def abort(self, request_id: str) -> None:
        self.aborted.put_nowait(request_id)

    def stats(self) -> EngineStats:
        return EngineStats(SchedulerStats(running=len(self.sinks)))

    def info(self) -> EngineInfo:
        return EngineInfo("s", "puppet", "cpu", "float32", 16, 10, 100, 0.0)

    def stop_accepting(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def say(self, id_: str, *outputs: Output) -> None:
        self.sinks[id_](list(outputs))


def result_of(id_: str, text: str = "", reason: FinishReason = FinishReason.STOP) -> GenerationResult:
    return GenerationResult(id_, text, (), reason, Usage(1, 0, 0, 0.0))


def ask(id_: str, **fields: Any) -> GenerationRequest:
    return GenerationRequest(id_, messages=(Message("user", "hello"),), **fields)


def play(scene: Coroutine[Any, Any, None]) -> None:
    """Run a scene; an exception that asyncio would only log fails it."""
    unheard: list[dict[str, Any]] = []

    async def staged() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
        async with asyncio.timeout(PATIENCE):
            await scene

    asyncio.run(staged())
    assert not unheard


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  what is waited for happens in another process or thread
        await asyncio.sleep(0.001)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"unix://{tmp_path}/e.sock"


def mode_of(path: Path) -> int | None:
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None


async def raw(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(url.removeprefix("unix://"))


async def answer(reader: asyncio.StreamReader) -> list[Any]:
    """All frames up to the end of the connection."""
    return [decode(payload) for payload in FrameBuffer().feed(await reader.read())]


@pytest.mark.parametrize("kind", ["unix", "tcp", "local"])
def test_the_contract(kind: str, url: str) -> None:
    async def scene() -> None:
        backend = NullEngine()
        server = EngineServer(backend, url if kind == "unix" else "tcp://127.0.0.1:0", TOKEN)
        await server.start()
        client: EngineClient = LocalEngineClient(backend) if kind == "local" else connect(server.url, TOKEN)
        assert not client.connected
        with pytest.raises(EngineLostError):
            await client.submit(ask("early"))
        await client.start()
        await client.start()
        assert client.connected
        assert await client.info() == backend.info()

        plain = await client.submit(ask("a"))
        assert plain.id == "a"
        assert (await plain.result()).finish_reason is FinishReason.STOP
        assert await plain.result() is await plain.result()
        await plain.abort()

        streamed = await client.submit(ask("b", stream=True, schema='{"type":"null"}'))
        assert [delta.text async for delta in streamed] == ["null"]
        assert [delta.text async for delta in streamed] == []
        assert (await streamed.result()).text == "null"

        odd = await client.submit(ask("c", schema="{", stream=True))
        with pytest.raises(GrammarError):
            await odd.result()
        with pytest.raises(GrammarError):
            [delta async for delta in odd]

        many = [await client.submit(ask(f"m{number}")) for number in range(300)]
        results = await asyncio.gather(*(generation.result() for generation in many))
        assert [result.id for result in results] == [f"m{number}" for number in range(300)]
        assert (await client.stats()).core.requests_finished == 302

        await client.stop_accepting()
        with pytest.raises(EngineNotAcceptingError):
            await (await client.submit(ask("late"))).result()
        await client.close()
        assert not client.connected
        with pytest.raises(EngineLostError):
            await client.submit(ask("after"))
        await server.close()
        backend.stop()

    play(scene())


@pytest.mark.parametrize("local", [False, True])
def test_abort_and_close_reach_the_backend(url: str, *, local: bool) -> None:
    async def scene() -> None:
        backend = NullEngine(latency=3600.0)
        server = EngineServer(backend, url)
        await server.start()
        client: EngineClient = LocalEngineClient(backend) if local else connect(url)
        await client.start()
        first, second = await client.submit(ask("a")), await client.submit(ask("b"))
        with pytest.raises(InvalidRequestError, match="in flight"):
            await client.submit(ask("a"))
        await first.abort()
        assert (await first.result()).finish_reason is FinishReason.ABORTED
        await client.close()
        with pytest.raises(EngineLostError):
            await second.result()
        await until(lambda: backend.stats().core.requests_aborted == 2)
        await server.close()
        backend.stop()

    play(scene())


def test_a_vanished_client_takes_its_requests_along_and_no_others(url: str) -> None:
    async def scene() -> None:
        backend = Puppet()
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

    play(scene())


def test_a_lost_engine_is_told_and_a_new_one_is_found(url: str) -> None:
    async def scene() -> None:
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

    play(scene())


def test_a_question_in_flight_ends_with_the_connection(url: str) -> None:
    async def scene() -> None:
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

    play(scene())


def test_a_submit_that_is_cancelled_while_the_engine_does_not_read_leaves_nothing_running(url: str) -> None:
    async def scene() -> None:
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

    play(scene())


def test_start_does_not_fail_while_the_engine_is_away(url: str) -> None:
    async def scene() -> None:
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

    play(scene())


def test_deltas_of_a_slow_client_are_merged_and_none_is_lost(url: str) -> None:
    async def scene() -> None:
        backend = Puppet()
        server = EngineServer(backend, url)
        await server.start()
        reader, writer = await raw(url)
        writer.write(encode(Hello()) + encode(Submit("a", {"id": "a", "text": "x", "stream": True})))
        id_ = await backend.arrived.get()
        pieces = [f"{number:05d}" * 400 for number in range(2000)]  # 4 MB: more than the socket's buffers hold
        for number, piece in enumerate(pieces):
            backend.say(id_, Delta(id_, piece, (number,)))
            await asyncio.sleep(0)
        backend.say(id_, result_of(id_, "end"))
        (connection,) = server._connections
        assert len(connection._outbox._deltas) <= 1
        buffer, deltas = FrameBuffer(), []
        while not deltas or isinstance(deltas[-1], Delta):
            for payload in buffer.feed(await reader.read(1 << 16)):
                deltas += getattr(decode(payload), "outputs", ())
        *deltas, result = deltas
        assert "".join(delta.text for delta in deltas) == "".join(pieces)
        assert [token for delta in deltas for token in delta.token_ids] == list(range(2000))
        assert result == result_of("a", "end")
        assert len(deltas) < len(pieces)
        writer.close()
        await server.close()

    play(scene())


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "limit"),
        (encode(Abort("a")), "hello"),
        (encode(Hello(99)), "version 99"),
        (encode(Hello()) + b"\x00\x00\x00\x03abc", "msgpack"),
        (encode(Hello()) + encode(Hello()), "Hello"),
        (encode(Hello()) + encode(Submit("a", {"id": "a", "text": "x"})) * 2, "in flight"),
    ],
)
def test_a_client_that_breaks_the_protocol_is_told_and_left(url: str, data: bytes, complaint: str) -> None:
    async def scene() -> None:
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

    play(scene())


def test_a_malformed_request_fails_alone(url: str) -> None:
    async def scene() -> None:
        server = EngineServer(NullEngine(), url)
        await server.start()
        reader, writer = await raw(url)
        bad = Submit("bad", {"id": "bad", "text": "x", "sampling": {"temperature": "hot"}})
        writer.write(encode(Hello()) + encode(bad) + encode(Submit("good", {"id": "good", "text": "x"})))
        buffer, outputs = FrameBuffer(), []
        while len(outputs) < 2:
            for payload in buffer.feed(await reader.read(1 << 16)):
                outputs += getattr(decode(payload), "outputs", ())
        assert isinstance(outputs[0], Failure)
        assert isinstance(outputs[0].error, InvalidRequestError)
        assert outputs[1].id == "good"
        writer.close()
        await server.close()

    play(scene())


@pytest.mark.parametrize("hello", [encode(Hello(99)), encode(Fault(ProtocolError("no"))), b"HTTP/1.1 400\r\n"])
def test_a_server_that_is_no_engine_of_ours_is_not_connected_to(url: str, hello: bytes) -> None:
    async def scene() -> None:
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

    play(scene())


def test_what_can_not_be_sent_is_the_requests_own_fault(url: str) -> None:
    async def scene() -> None:
        server = EngineServer(NullEngine(), url)
        await server.start()
        client = connect(url)
        await client.start()
        with pytest.raises(InvalidRequestError, match="packed"):
            await client.submit(GenerationRequest("a", token_ids=(2**70,)))
        assert client.connected
        odd = await client.submit(GenerationRequest("a", text="\ud800", sampling=SamplingParams(max_tokens=1)))
        assert (await odd.result()).id == "a", "lone surrogates travel; a real frontend refuses them"
        await client.close()
        await server.close()

    play(scene())


def test_the_socket_is_its_owners_and_a_leftover_is_replaced(url: str) -> None:
    path = Path(url.removeprefix("unix://"))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))

    async def scene() -> None:
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

    play(scene())


def test_a_file_in_the_way_is_not_removed(url: str) -> None:
    path = Path(url.removeprefix("unix://"))
    path.write_text("mine")

    async def scene() -> None:
        with pytest.raises(InvalidRequestError, match="listen"):
            await EngineServer(NullEngine(), url).start()

    play(scene())
    assert path.read_text() == "mine"


def test_a_killed_client_process_is_noticed(url: str) -> None:
    code = f"""
import asyncio, sys
from thothy_ai.engine.api import GenerationRequest
from thothy_ai.engine.client import connect
async def main():
    client = connect({url!r})
    await client.start()
    await client.submit(GenerationRequest("a", text="x"))
    await client.stats()
    print("sent", flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""

    async def scene() -> None:
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

    play(scene())


def test_wait_settled_waits_for_answers_to_leave(url: str) -> None:
    async def scene() -> None:
        backend = Puppet()
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

    play(scene())
