"""`Heart`: says again and again that this worker lives: its leases are extended, its waiting messages are not lost.

With each beat it books what others could not (`arrears.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from uuid import UUID

from thothy_ai.errors import DatabaseError
from thothy_ai.queue.hints import Hint
from thothy_ai.settings import Settings
from thothy_ai.worker.engine_monitor import Residency
from thothy_ai.worker.job_store import Beat, Ledger
from thothy_ai.worker.running_job import Fate, Flight
from thothy_ai.worker.unbilled_usage import Arrears

logger = logging.getLogger(__name__)

HOLD_SECONDS = 60.0  # without an engine messages are kept so long; then other workers get their jobs
STOPS_SECONDS = 0.5  # between looks at what is to be stopped: a lease needs no such haste
RETRY_SECONDS = 0.5  # leases run on while Postgres is away: it is told at once when it is back


class Heart:
    """One heartbeat for all flights, which stops those that are cancelled, expired or fenced. Reads, owns nothing."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        residency: Residency,
        arrears: Arrears,
        flights: Collection[Flight],
        held: Callable[[], list[Hint]],
    ) -> None:
        self._interval = min(settings.heartbeat_seconds, settings.dispatch_timeout_seconds / 3)
        self._ledger = ledger
        self._residency = residency
        self._arrears = arrears
        self._flights = flights
        self._held = held

    async def run(self) -> None:
        """Beat until cancelled."""
        pause = self._interval
        while True:
            await asyncio.sleep(pause)
            pause = self._interval
            try:
                await self._hold()
                await self._beat()
                await self._arrears.book(self._ledger)
            except DatabaseError as error:
                logger.warning("no heartbeat: %s", error)
                pause = min(pause, RETRY_SECONDS)

    async def watch(self) -> None:
        """Stop what is cancelled or too late, soon, until cancelled."""
        while True:
            await asyncio.sleep(STOPS_SECONDS)
            if self._flights:
                with suppress(DatabaseError):  # the heartbeat says so
                    self._stop(await self._ledger.stops())

    async def _hold(self) -> None:
        held = self._held()
        if held and self._residency.away_seconds < HOLD_SECONDS:
            await self._ledger.hold(held)

    async def _beat(self) -> None:
        flights = list(self._flights)
        if not flights:
            return
        beats = await self._ledger.heartbeat([flight.claim for flight in flights])
        for flight in flights:
            if flight.claim.token not in beats:
                flight.stop(Fate.FENCED)
        self._stop(beats)

    def _stop(self, beats: Mapping[tuple[UUID, int], Beat]) -> None:
        for flight in self._flights:
            beat = beats.get(flight.claim.token)
            if beat is not None and (beat.cancel_requested or beat.expired):
                flight.stop(Fate.CANCELLED if beat.cancel_requested else Fate.EXPIRED)
