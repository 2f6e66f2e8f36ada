"""Each requested recheck of the engine leads to a check, and none delays the checks that follow."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from tests.support.fake_engine import FakeClient
from thothy_ai.engine.api import EngineInfo, EngineStats
from thothy_ai.worker.engine_monitor import MIN_PAUSE, EngineMonitor
from thothy_ai.worker.unbilled_usage import UnbilledUsage


class RecheckingStore:
    """The engine's connection is cut while its session is recorded for the first time."""

    def __init__(self) -> None:
        self.records = 0
        self.monitor: EngineMonitor | None = None
        self.recorded_again = asyncio.Event()

    async def record_session(self, info: EngineInfo, stats: EngineStats) -> None:
        self.records += 1
        if self.records == 1:
            self.monitor.recheck()
        else:
            self.recorded_again.set()


def test_a_recheck_that_is_requested_while_a_check_is_recorded_leads_to_another() -> None:
    async def check_twice() -> bool:
        store = RecheckingStore()
        store.monitor = EngineMonitor(FakeClient(), store, UnbilledUsage(), interval_seconds=1000)
        task = asyncio.create_task(store.monitor.run())
        async with asyncio.timeout(60):
            await store.recorded_again.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return store.monitor.is_ready

    assert asyncio.run(check_twice())


def test_many_rechecks_at_once_do_not_lengthen_the_pause() -> None:
    """Every request that is lost with an engine asks for one."""
    monitor, began = (
        EngineMonitor(FakeClient(), RecheckingStore(), UnbilledUsage(), interval_seconds=1000),
        time.monotonic(),
    )
    pauses = [monitor._set_away(OSError("gone")) for _ in range(100)]
    assert max(pauses) <= max(MIN_PAUSE, time.monotonic() - began)
