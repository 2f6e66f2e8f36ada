"""Client and server over real sockets, on backends that answer at once or as the test says."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import msgpack
import pytest

from tests.support.scripted_backend import (
    TOKEN,
    ScriptedBackend,
    ask,
    play,
    raw,
    result_of,
    until,
)
from thothy_ai.engine.api import AbandonedRequest, Delta, FinishReason, GenerationRequest, Usage
from thothy_ai.engine.backend import Failure
from thothy_ai.engine.client import EngineClient, LocalEngineClient, connect
from thothy_ai.engine.errors import (
    EngineError,
    EngineLostError,
    EngineNotAcceptingError,
    GrammarError,
    InvalidRequestError,
)
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.engine.serving import protocol
from thothy_ai.engine.serving.protocol import Abort, FrameBuffer, Hello, Submit, decode, encode
from thothy_ai.engine.serving.server import EngineServer

USAGE = Usage(7, 2, 3, 0.5)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"unix://{tmp_path}/e.sock"


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


@pytest.mark.parametrize("local", [False, True])
def test_a_client_looks_at_the_text_early_and_aborts_with_its_usage(url: str, *, local: bool) -> None:
    async def scene() -> None:
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

    play(scene())


def test_a_client_looks_at_the_text_again_as_it_grows(url: str) -> None:
    async def scene() -> None:
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

    play(scene())


def test_the_early_text_of_a_request_that_ends_before_is_the_whole_one(url: str) -> None:
    """So it is with an engine that knows no early reports."""

    async def scene() -> None:
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

    play(scene())


@pytest.mark.parametrize("local", [False, True])
def test_a_request_in_flight_can_be_streamed(url: str, *, local: bool) -> None:
    async def scene() -> None:
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

    play(scene())


def test_a_vanished_client_takes_its_requests_along_and_no_others(url: str) -> None:
    async def scene() -> None:
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
        backend = ScriptedBackend()
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


def test_a_result_that_no_frame_holds_costs_nobody_else(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_FRAME", 100_000)

    async def scene() -> None:
        backend = ScriptedBackend()
        server = EngineServer(backend, url)
        await server.start()
        client = connect(url)
        await client.start()
        asked = {id_: await client.submit(ask(id_, stream=id_ == "long")) for id_ in ("a", "huge", "long", "b")}
        names = {id_: await backend.arrived.get() for id_ in asked}
        huge = replace(result_of(names["huge"], "x" * 200_000), usage=USAGE)
        long = Delta(names["long"], "y" * 300_000, (1,) * 301)
        backend.say(
            names["a"], result_of(names["a"], "A"), huge, long, result_of(names["b"], "B"), result_of(names["long"])
        )
        assert [(await asked[id_].result()).text for id_ in ("a", "b")] == ["A", "B"]
        with pytest.raises(EngineError, match="limit"):
            await asked["huge"].result()
        assert asked["huge"].usage == USAGE
        deltas = [delta async for delta in asked["long"]]
        assert "".join(delta.text for delta in deltas) == long.text
        assert tuple(token for delta in deltas for token in delta.token_ids) == long.token_ids
        await client.close()
        await server.close()

    play(scene())


def test_bad_requests_with_long_texts_cost_nobody_else(url: str) -> None:
    """Errors quote what is wrong: forty of these did not fit a frame."""

    async def scene() -> None:
        backend = ScriptedBackend()
        server = EngineServer(backend, url)
        await server.start()
        client = connect(url)
        await client.start()
        good = await client.submit(ask("good"))
        names = [await backend.arrived.get()]
        bad = [await client.submit(ask(f"bad{number}")) for number in range(40)]
        names += [await backend.arrived.get() for _ in bad]
        for name in names[1:]:
            backend.say(name, Failure(name, GrammarError("(" * 2_300_000)))
        backend.say(names[0], result_of(names[0], "fine"))
        assert (await good.result()).text == "fine"
        for generation in bad:
            with pytest.raises(GrammarError):
                await generation.result()
        await client.close()
        await server.close()

    play(scene())


@pytest.mark.parametrize("local", [False, True])
def test_a_failure_tells_what_it_took(url: str, *, local: bool) -> None:
    async def scene() -> None:
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

    play(scene())


def test_a_client_of_an_earlier_version_is_told_of_failures_as_before(url: str) -> None:
    """It would not understand their usage, which the next client that asks is told instead."""

    async def scene() -> None:
        backend = ScriptedBackend()
        server = EngineServer(backend, url)
        await server.start()
        reader, writer = await raw(url)
        writer.write(encode(Hello()) + encode(Submit("a", {"id": "a", "text": "x"})))
        name = await backend.arrived.get()
        backend.say(name, Failure(name, GrammarError("grew"), USAGE))
        buffer = FrameBuffer()
        payloads: list[bytes] = []
        while len(payloads) < 2:
            payloads += buffer.feed(await reader.read(1 << 16))
        assert msgpack.unpackb(payloads[1]) == ["outputs", [["failure", "a", "invalid_grammar", "grew"]]]
        client = connect(url)
        await client.start()
        assert (await client.take_abandoned_usage()).requests == (AbandonedRequest("a", USAGE.compute_seconds),)
        writer.close()
        await client.close()
        await server.close()

    play(scene())


def test_a_failure_that_a_vanished_client_may_not_have_recorded_is_reported(url: str) -> None:
    async def scene() -> None:
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

    play(scene())
