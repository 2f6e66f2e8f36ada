"""`Forecaster`: makes forecasts in a thread of the dispatcher, records them, and compares them with the outcomes.

One of all dispatchers' forecasters leads. How often it looks depends on what a look costs: at most a hundredth of the
time; a tenth while the queue is empty, an engine restarts or a drain is about to end: forecasts age quickly then.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

from thothy_ai.queue.forecast.learning import History, learn
from thothy_ai.queue.forecast.outlook import Forecast
from thothy_ai.queue.forecast.store import keep, made_of, observe, read_kept, statistics
from thothy_ai.queue.forecast.values import Observation
from thothy_ai.queue.leader import Leader
from thothy_ai.settings import Settings

ROLE = "forecaster"
SESSION = ("SET jit = off",)  # compiling takes longer than what it saves
MIN_INTERVAL, IDLE_INTERVAL, MAX_INTERVAL = 2.0, 5.0, 300.0
COST_FACTOR, COST_FACTOR_IN_HASTE = 100.0, 10.0  # an interval is that many times as long as the look before it
LOOK_AGAIN = 0.25  # of the time to empty
RECORD_SECONDS = 60.0
KEEP_DAYS = 60
PRUNE_SECONDS = 3600.0


class Forecaster:
    """Owns the tables `forecast_state` and `forecast`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._leader = Leader(settings, ROLE, session=SESSION)
        self._history: History | None = None
        self._recorded_at = 0.0
        self._kept_at = 0.0
        self._pruned_at = 0.0

    def beside(self) -> AbstractContextManager[None]:
        """Make forecasts in a thread meanwhile."""
        return self._leader.leading(self._round)

    def run(self) -> None:
        self._leader.lead(self._round)

    def stop(self) -> None:
        """Stop at once; from any thread."""
        self._leader.stop()

    def _round(self) -> float:
        if self._history is None or self._leader.led_seconds < MIN_INTERVAL:  # another may have led
            kept = read_kept(self._leader.ask)
            self._history = kept.history if kept else History()
        begun, before = time.monotonic(), self._history
        with self._leader.snapshot():
            seen = observe(self._leader.ask, before.at)
        self._history = learn(before, seen)
        made = made_of(self._history, seen, self._settings.publish_by)
        seconds = time.monotonic() - begun
        every = interval(seconds, made)
        if made.open_jobs or before.open_jobs or made.at - self._kept_at >= RECORD_SECONDS:
            keep(self._leader.ask, self._history, made, every)
            self._kept_at = made.at
        if made.at - self._pruned_at >= PRUNE_SECONDS:
            self._leader.ask("forecast/prune", days=KEEP_DAYS)
            self._pruned_at = made.at
        if seen.open_jobs or before.open_jobs:
            self._compare(before, self._history, seen, made)
        return every

    def _compare(self, before: History, history: History, seen: Observation, made: Forecast) -> None:
        """End the forecasts whose jobs have ended; record this one, once a minute."""
        paused = seen.paused or seen.partly_paused
        if history.arrived or paused:
            self._leader.ask("forecast/disturb", arrived=round(history.arrived), paused=paused)
        self._leader.ask("forecast/settle", since=before.at, oldest=seen.oldest)
        figures = statistics(made)
        new_drain = history.open_since != before.open_since
        if figures and (new_drain or made.at - self._recorded_at >= RECORD_SECONDS):
            self._leader.ask("forecast/record", made_at=made.at, began_at=history.open_since, **figures)
            self._recorded_at = made.at


def interval(seconds: float, made: Forecast) -> float:
    """Seconds until the next look, after one that took `seconds`. The first one after a start takes long."""
    soon = COST_FACTOR_IN_HASTE * seconds
    if not made.open_jobs:
        return min(max(soon, IDLE_INTERVAL), MAX_INTERVAL)
    if made.p50 is not None and not made.returning:
        soon = max(soon, min(COST_FACTOR * seconds, LOOK_AGAIN * made.p50))
    return min(max(soon, MIN_INTERVAL), MAX_INTERVAL)
