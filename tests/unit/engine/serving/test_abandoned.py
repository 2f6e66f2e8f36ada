"""Usage of requests whose client disconnected: kept, reported once, and bounded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.support.local_client import LocalEngineClient
from tests.support.patience import PATIENCE
from thothy_ai.engine.api import AbandonedRequest, AbandonedStats, AbandonedUsage, GenerationRequest
from thothy_ai.engine.api.errors import ProtocolError
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.engine.serving.abandoned import MAX_BATCH, AbandonedUsageStore
from thothy_ai.engine.serving.client import connect
from thothy_ai.engine.serving.server import EngineServer
from thothy_ai.engine.wire.codec import Raw, pack, unpack


def test_usage_is_kept_up_to_a_number_and_reported_once() -> None:
    usage = AbandonedUsageStore(max_kept=3)
    for number in range(5):
        usage.add(f"{number}", 0.5)
    usage.add("free", 0.0)
    usage.add("2", 0.25)
    assert usage.stats == AbandonedStats(kept=3, dropped=2)
    left = (AbandonedRequest("3", 0.5), AbandonedRequest("4", 0.5), AbandonedRequest("2", 0.75))
    assert usage.take("s") == AbandonedUsage("s", left)
    assert (usage.stats.kept, usage.take("s")) == (0, AbandonedUsage("s"))


def test_a_reply_has_a_limit() -> None:
    usage = AbandonedUsageStore()
    for number in range(MAX_BATCH + 1):
        usage.add(f"{number}", 0.5)
    assert len(usage.take("s").requests) == MAX_BATCH
    assert usage.take("s").requests == (AbandonedRequest(f"{MAX_BATCH}", 0.5),)


@pytest.mark.parametrize(
    "fields", [{}, {"session_id": "s", "requests": [1]}, {"session_id": "s", "requests": [("a", "b")]}]
)
def test_a_malformed_reply_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        unpack(AbandonedUsage, Raw(msgspec.msgpack.encode(fields)))
    usage = AbandonedUsage("s", (AbandonedRequest("a", 0.5),))
    assert unpack(AbandonedUsage, pack(usage)) == usage


def test_the_next_client_takes_what_the_last_one_left(tmp_path: Path) -> None:
    """Of what it had in flight, and of results that it may not have kept."""

    async def body() -> None:
        backend, url = NullEngine(0.1), f"unix://{tmp_path}/e.sock"
        server = EngineServer(backend, url)
        await server.start()
        staying, leaving = connect(url), connect(url)
        await staying.start()
        await leaving.start()
        await (await leaving.submit(GenerationRequest("had", text="x"))).result()
        await (await staying.submit(GenerationRequest("mine", text="x"))).result()
        await leaving.submit(GenerationRequest("left", text="x"))
        assert (await leaving.stats()).abandoned.kept == 0
        await leaving.close()
        async with asyncio.timeout(PATIENCE):
            while (await staying.stats()).abandoned.kept < 2:  # noqa: ASYNC110 - the engine sends no notice
                await asyncio.sleep(0.01)
        told = await staying.take_abandoned_usage()
        assert told.session_id == backend.info().session_id
        assert [request.id for request in told.requests] == ["had", "left"]
        busy = sum(request.compute_seconds for request in told.requests) + 0.1
        assert backend.stats().core.busy_seconds == pytest.approx(busy)
        assert (await staying.stats()).abandoned.kept == 0
        assert await staying.take_abandoned_usage() == AbandonedUsage(told.session_id)
        assert await LocalEngineClient(backend).take_abandoned_usage() == AbandonedUsage(told.session_id)
        await staying.close()
        await server.close()
        backend.stop()

    asyncio.run(body())
