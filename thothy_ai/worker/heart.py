"""`Heart`: says again and again that this worker lives: its leases are extended, its waiting messages are not lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from thothy_ai.errors import DatabaseError
from thothy_ai.settings import Settings
from thothy_ai.worker.flights import Fate, Flight
from thothy_ai.worker.hints import Hint
from thothy_ai.worker.ledger import Ledger
from thothy_ai.worker.residency import Residency

logger = logging.getLogger(__name__)

HOLD_SECONDS = 60.0  # without an engine messages are kept so long; then other workers get their jobs
RETRY_SECONDS = 0.5  # leases run on while Postgres is away: it is told at once when it is back


class Heart:
    """One heartbeat for all flights, which stops those that are cancelled, expired or fenced. Reads, owns nothing."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        residency: Residency,
        flights: Collection[Flight],
        held: Callable[[], list[Hint]],
    ) -> None:
        self._interval = min(settings.heartbeat_seconds, settings.dispatch_timeout_seconds / 3)
        self._ledger = ledger
        self._residency = residency
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
            except DatabaseError as error:
                logger.warning("no heartbeat: %s", error)
                pause = min(pause, RETRY_SECONDS)

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
            beat = beats.get((flight.claim.id, flight.claim.attempt))
            if beat is None:
                flight.stop(Fate.FENCED)
            elif beat.cancel_requested:
                flight.stop(Fate.CANCELLED)
            elif beat.expired:
                flight.stop(Fate.EXPIRED)
