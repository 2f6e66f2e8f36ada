"""A doubt about the engine is never lost: each asks for a look."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.support.fake_engine import FakeClient
from thothy_ai.engine.api import EngineInfo, EngineStats
from thothy_ai.worker.engine_monitor import Residency
from thothy_ai.worker.unbilled_usage import Arrears


class DoubtingLedger:
    """The engine's connection is cut while its session is recorded for the first time."""

    def __init__(self) -> None:
        self.records = 0
        self.residency: Residency | None = None
        self.recorded_again = asyncio.Event()

    async def record_session(self, info: EngineInfo, stats: EngineStats) -> None:
        self.records += 1
        if self.records == 1:
            self.residency.doubt()
        else:
            self.recorded_again.set()


def test_a_doubt_that_comes_up_while_a_look_is_recorded_asks_for_another() -> None:
    async def look_twice() -> bool:
        ledger = DoubtingLedger()
        ledger.residency = Residency(FakeClient(), ledger, Arrears(), interval_seconds=1000)
        task = asyncio.create_task(ledger.residency.run())
        async with asyncio.timeout(5):
            await ledger.recorded_again.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return ledger.residency.is_ready

    assert asyncio.run(look_twice())
