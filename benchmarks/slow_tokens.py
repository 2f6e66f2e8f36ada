"""What an engine did while requests waited for their first tokens: its counters, read again and again beside a load."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import NamedTuple

from benchmarks.results import Row
from thothy_ai.bench.service.load import RequestTiming
from thothy_ai.engine.api import CoreStats
from thothy_ai.engine.serving.client import EngineClient

HEADS = (
    "sent at, s",
    "first token, ms",
    "some waited, ms",
    "steps",
    "replayed",
    "prompt tokens",
    "other tokens",
    "busy, ms",
    "idle, ms",
)
_EVERY_SECONDS = 0.005


class _Look(NamedTuple):
    at: float  # by the clock of `time.perf_counter`
    core: CoreStats
    waiting: int


class Watch:
    """Looks at an engine's counters while `running`."""

    def __init__(self, client: EngineClient) -> None:
        self._client, self._looks = client, list[_Look]()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            stats = await self._client.stats()
            self._looks.append(_Look(time.perf_counter(), stats.core, stats.scheduler.waiting))
            await asyncio.sleep(_EVERY_SECONDS)

    def rows(self, began: float, samples: Iterable[RequestTiming], beyond: float) -> list[Row]:
        """A row for each request of a load, which `began` at that time, whose first token took longer than `beyond`
        seconds: what the engine did until then, for all requests together. `some waited`: how long some request waited
        to be admitted.
        """
        slow = [each for each in samples if each.error is None and each.first_token > beyond]
        return [self._row(began, each) for each in slow]

    def _row(self, began: float, sample: RequestTiming) -> Row:
        sent = sample.due + sample.late
        looks = self._within(began + sent, began + sent + sample.first_token)
        first, last = looks[0].core, looks[-1].core
        waited = sum(after.at - look.at for look, after in pairwise(looks) if look.waiting)

        def gained(name: str) -> float:
            return float(getattr(last, name) - getattr(first, name))

        counted = (gained(name) for name in ("steps", "replayed_steps", "prefill_tokens", "decode_tokens"))
        timed = (sample.first_token, waited)
        spent = (gained("busy_seconds"), gained("gap_seconds"))
        return (
            f"{sent:.2f}",
            *(f"{1e3 * seconds:.0f}" for seconds in timed),
            *(f"{count:,.0f}" for count in counted),
            *(f"{1e3 * seconds:.0f}" for seconds in spent),
        )

    def _within(self, begin: float, end: float) -> list[_Look]:
        """The looks from the last before `begin` to the first after `end`."""
        times = [look.at for look in self._looks]
        first = max(0, bisect_right(times, begin) - 1)
        return self._looks[first : max(bisect_left(times, end), first) + 1]
