"""Client and server over real sockets, on backends that answer at once or as the test says."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.support.local_client import LocalEngineClient
from tests.support.scripted_backend import TOKEN, ScriptedBackend, ask, raw, result_of, run_in_loop, until
from tests.support.travelled import submit_of
from thothy_ai.engine.api import MAX_NAME, Delta, FinishReason, TokenLogprob, Usage
from thothy_ai.engine.api.backend import Failure
from thothy_ai.engine.api.errors import (
    EngineError,
    EngineLostError,
    EngineNotAcceptingError,
    GrammarError,
    InvalidRequestError,
)
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.engine.serving.client import EngineClient, connect
from thothy_ai.engine.serving.server import EngineServer
from thothy_ai.engine.wire import protocol
from thothy_ai.engine.wire.codec import FrameBuffer
from thothy_ai.engine.wire.protocol import Hello, decode, encode

USAGE = Usage(7, 2, 3, 0.5)


@pytest.mark.parametrize("length", [MAX_NAME - 1, MAX_NAME, MAX_NAME + 1])
def test_an_id_may_be_as_long_as_a_name(length: int, url: str) -> None:
    """The connection's number, which the server puts before it, does not count."""

    async def body() -> None:
        server = EngineServer(NullEngine(), url, None)
        await server.start()
        client = connect(server.url)
        await client.start()
        name = "x" * length
        if length > MAX_NAME:
            with pytest.raises(InvalidRequestError, match="1,001 characters; 1,000 are possible"):
                await client.submit(ask(name))
        else:
            assert (await (await client.submit(ask(name))).result()).id == name
        await client.close()
        await server.close()

    run_in_loop(body())


@pytest.mark.parametrize("kind", ["unix", "tcp", "local"])
def test_the_contract(kind: str, url: str) -> None:
    async def body() -> None:
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
        assert await client.vocabulary() == backend.vocabulary()

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

    run_in_loop(body())


@pytest.mark.parametrize("local", [False, True])
def test_abort_and_close_reach_the_backend(url: str, *, local: bool) -> None:
    async def body() -> None:
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

    run_in_loop(body())


def test_deltas_of_a_slow_client_are_merged_and_none_is_lost(url: str) -> None:
    async def body() -> None:
        backend = ScriptedBackend()
        server = EngineServer(backend, url)
        await server.start()
        reader, writer = await raw(url)
        writer.write(encode(Hello()) + encode(submit_of("a", text="x", stream=True)))
        id_ = await backend.arrived.get()
        pieces = [f"{number:05d}" * 400 for number in range(2000)]  # 4 MB: more than the socket's buffers hold
        for number, piece in enumerate(pieces):
            backend.say(id_, Delta(id_, piece, (number,), logprobs=(TokenLogprob(-float(number)),)))
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
        assert [-each.logprob for delta in deltas for each in delta.logprobs if each] == list(range(2000))
        assert result == result_of("a", "end")
        assert len(deltas) < len(pieces)
        writer.close()
        await server.close()

    run_in_loop(body())


def test_a_result_that_no_frame_holds_costs_nobody_else(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol.FRAMES, "_max_frame", 100_000)

    async def body() -> None:
        backend = ScriptedBackend()
        server = EngineServer(backend, url)
        await server.start()
        client = connect(url)
        await client.start()
        asked = {id_: await client.submit(ask(id_, stream=id_ == "long")) for id_ in ("a", "huge", "long", "b")}
        names = {id_: await backend.arrived.get() for id_ in asked}
        huge = replace(result_of(names["huge"], "x" * 200_000), usage=USAGE)
        long = Delta(names["long"], "y" * 300_000, (1,) * 301, logprobs=(None,) * 301)
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
        assert all(len(delta.logprobs) == len(delta.token_ids) for delta in deltas)
        await client.close()
        await server.close()

    run_in_loop(body())


def test_bad_requests_with_long_texts_cost_nobody_else(url: str) -> None:
    """Errors quote what is wrong: forty of these did not fit a frame."""

    async def body() -> None:
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

    run_in_loop(body())
