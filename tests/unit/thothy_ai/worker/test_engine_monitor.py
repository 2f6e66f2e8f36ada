"""When the engine is checked, what is believed of it meanwhile, and what lost requests change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID

import pytest

from tests.support.fake_engine import FakeClient
from thothy_ai.engine.api import EngineStats, GenerationRequest
from thothy_ai.engine.api.errors import EngineLostError
from thothy_ai.worker.engine_monitor import MIN_PAUSE, EngineMonitor
from thothy_ai.worker.record.unbilled import UnbilledUsage


class Recording:
    """Notes which sessions a worker reaches."""

    def __init__(self) -> None:
        self.sessions: list[str] = []

    async def show_presence(self, session_id: str) -> bool:
        self.sessions.append(session_id)
        return True


@asynccontextmanager
async def monitoring(client: FakeClient, store: Recording) -> AsyncIterator[EngineMonitor]:
    """It has seen the engine answer, and checks it again only when it has to."""
    monitor = EngineMonitor(client, store, UnbilledUsage(), interval_seconds=1000)
    task = asyncio.create_task(monitor.run())
    try:
        async with asyncio.timeout(60):
            await monitor.ready()
            yield monitor
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class LostWhileRecorded(Recording):
    """The engine's connection is cut while its session is recorded for the first time."""

    def __init__(self, client: FakeClient) -> None:
        super().__init__()
        self.client = client
        self.recorded_again = asyncio.Event()

    async def show_presence(self, session_id: str) -> bool:
        if len(self.sessions) == 0:
            self.client.on_lost()
        else:
            self.recorded_again.set()
        return await super().show_presence(session_id)


def test_a_recheck_that_is_requested_while_a_check_is_recorded_leads_to_another() -> None:
    async def body() -> None:
        client = FakeClient()
        store = LostWhileRecorded(client)
        async with monitoring(client, store) as monitor:
            await store.recorded_again.wait()
            assert monitor.is_ready

    asyncio.run(body())


def test_many_rechecks_at_once_do_not_lengthen_the_pause() -> None:
    """Each request that an engine reports as lost asks for one."""
    monitor, began = (
        EngineMonitor(FakeClient(), Recording(), UnbilledUsage(), interval_seconds=1000),
        time.monotonic(),
    )
    pauses = [monitor._set_away(OSError("gone")) for _ in range(100)]
    assert max(pauses) <= max(MIN_PAUSE, time.monotonic() - began)


def test_requests_that_are_lost_with_an_engine_do_not_hold_up_its_next_session() -> None:
    async def body() -> None:
        client, store = FakeClient(), Recording()
        async with monitoring(client, store) as monitor:
            before = monitor.session_id
            client.renew()
            client.on_lost()
            assert not await monitor.outlived(before)
            for _ in range(100):  # each after the one before, as tasks of a busy worker
                assert not await monitor.outlived(before)
                assert monitor.is_ready
            await asyncio.sleep(0)
            assert store.sessions == [str(before), client.session_id]

    asyncio.run(body())


def test_a_connection_that_breaks_does_not_end_a_session() -> None:
    async def body() -> None:
        client = FakeClient()
        async with monitoring(client, Recording()) as monitor:
            client.on_lost()
            assert not monitor.is_ready
            assert await monitor.outlived(monitor.session_id)
            assert not await monitor.outlived(None)

    asyncio.run(body())


class LostAfterItsAnswer(FakeClient):
    """Its connection breaks when the engine has just answered, and leads to a new engine then."""

    breaks = False

    async def stats(self) -> EngineStats:
        stats = await super().stats()
        if self.breaks:
            self.breaks = False
            self.renew()
            self.on_lost()
        return stats


def test_an_answer_from_before_the_connection_broke_is_not_believed() -> None:
    async def body() -> None:
        client, store = LostAfterItsAnswer(), Recording()
        async with monitoring(client, store) as monitor:
            before, client.breaks = monitor.session_id, True
            monitor.recheck()
            assert not await monitor.outlived(before)
            assert store.sessions == [str(before), client.session_id]

    asyncio.run(body())


def test_a_request_that_cannot_be_sent_leads_to_a_check() -> None:
    async def body() -> None:
        client = FakeClient()
        async with monitoring(client, Recording()) as monitor:
            client.up = False
            with pytest.raises(EngineLostError):
                await monitor.submit(GenerationRequest("a", text="x"))
            assert not monitor.is_ready
            client.up = True
            await monitor.ready()

    asyncio.run(body())


def test_a_refusal_by_a_session_that_has_ended_does_not_stop_the_next_one() -> None:
    async def body() -> None:
        client = FakeClient()
        async with monitoring(client, Recording()) as monitor:
            before = monitor.session_id
            client.renew()
            monitor.recheck()
            await monitor.ready()
            assert monitor.session_id == UUID(client.session_id)
            monitor.await_new_session(before)
            assert monitor.is_ready
            monitor.await_new_session(monitor.session_id)
            assert not monitor.is_ready

    asyncio.run(body())
