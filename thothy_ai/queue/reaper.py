"""`Reaper`: takes back what died, ends what expired, and keeps the books.

leases that ran out             queued again, or dead when failures are used up; not within a lease of an outage
dispatches lost in Redis        queued again
deadlines that passed           expired
engines that fell silent        their session ends, its books are closed
partitions, usage_hourly        made, summed
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from thothy_ai.crash_points import crash_point
from thothy_ai.db.schema import MONTHS_AHEAD, refuse_other_schema
from thothy_ai.db.states import JobState
from thothy_ai.queue.broker import Broker
from thothy_ai.queue.hints import Hint
from thothy_ai.queue.leader import Leader
from thothy_ai.queue.metrics import JOBS
from thothy_ai.settings import Settings
from thothy_ai.telemetry import configure_logging, serve_metrics

logger = logging.getLogger(__name__)

MINUTE, HOUR = 60.0, 3600.0
ENGINE_SILENCE_SECONDS = 60.0
BATCH = 5000  # jobs that end in one transaction
USAGE_HOURS = 1  # before the current one


class Reaper:
    """Every rule is one statement; the leader runs them every `reap_interval_seconds`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._broker = Broker(settings)
        self._leader = Leader(settings, "reaper")
        self._rules: tuple[tuple[float, Callable[[], None]], ...] = (
            (0.0, self._leases),
            (0.0, self._expired),
            (0.0, self._dispatches),
            (MINUTE, self._cancelled),
            (MINUTE, self._usage),
            (MINUTE, self._sessions),
            (HOUR, self._partitions),
        )
        self._last = dict.fromkeys(range(len(self._rules)), float("-inf"))
        self._more = False  # a rule has left something for the next round
        self._missing: set[Hint] = set()  # dispatches that the last round did not find anywhere

    def run(self) -> None:
        """Reap until `stop`."""
        try:
            self._leader.lead(self._round)
        finally:
            self._broker.close()

    def stop(self) -> None:
        """Stop at once; from any thread."""
        self._leader.stop()

    def stop_on_signals(self) -> None:
        """Stop on SIGTERM and SIGINT."""
        self._leader.stop_on_signals()

    def _round(self) -> float:
        self._more = False
        for number, (every, rule) in enumerate(self._rules):
            if time.monotonic() - self._last[number] >= every:
                rule()
                self._last[number] = time.monotonic()
                crash_point("mid_reap")
        return 0.0 if self._more else self._settings.reap_interval_seconds

    def _leases(self) -> None:
        """Take back what silent workers hold; not before they could have been heard.

        While Postgres was away no lease could be extended: whoever lives has the length of a lease to say so.
        """
        if self._leader.led_seconds < self._settings.lease_seconds:
            return
        rows = self._leader.ask(
            "reap_leases",
            retry_base_seconds=self._settings.retry_base_seconds,
            retry_cap_seconds=self._settings.retry_cap_seconds,
        )
        _report("their lease ran out", rows)

    def _expired(self) -> None:
        self._end("their deadline passed", "reap_expired")

    def _cancelled(self) -> None:
        self._end("cancelled", "reap_cancelled")

    def _end(self, why: str, name: str) -> None:
        """End a batch; when it was full, the next round comes at once, and the other rules in between."""
        rows = self._leader.ask(name, limit=BATCH)
        self._more = self._more or len(rows) == BATCH
        _report(why, rows)

    def _dispatches(self) -> None:
        """A dispatch that nobody claimed in time and whose message is not in Redis is lost.

        Not at first sight: a worker may have taken the message from Redis a moment ago.
        """
        timeout = self._settings.dispatch_timeout_seconds
        silent = {Hint(*row) for row in self._leader.ask("reap_silent", timeout_seconds=timeout)}
        missing = silent - self._broker.waiting() if silent else silent
        lost, self._missing = sorted(missing & self._missing), missing
        if lost:
            rows = self._leader.ask(
                "reap_dispatches",
                ids=[hint.job_id for hint in lost],
                dispatch_nos=[hint.dispatch_no for hint in lost],
                timeout_seconds=timeout,
            )
            logger.warning("%d jobs are queued again: their messages were lost", len(rows))

    def _sessions(self) -> None:
        for row in self._leader.ask("reap_sessions", silence_seconds=ENGINE_SILENCE_SECONDS):
            logger.warning("engine session %s ended: nobody has heard of it", row.id)
        self._leader.ask("reap_books")

    def _usage(self) -> None:
        self._leader.ask("reap_usage", hours=USAGE_HOURS)

    def _partitions(self) -> None:
        self._leader.ask("reap_partitions", months_ahead=MONTHS_AHEAD)


def _report(why: str, rows: Sequence[Any]) -> None:
    for row in rows:
        if JobState(row.state).terminal:
            JOBS.labels(row.kind, row.state).inc()
    for state, jobs in Counter(row.state for row in rows).items():
        logger.warning("%d jobs are %s: %s", jobs, state, why)


def main(settings: Settings) -> None:
    """Run a reaper in this process until SIGTERM."""
    configure_logging(settings)
    refuse_other_schema(settings)
    reaper = Reaper(settings)
    reaper.stop_on_signals()
    serve_metrics(settings)
    reaper.run()
