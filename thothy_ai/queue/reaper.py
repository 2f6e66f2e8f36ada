"""`Reaper`: takes back lost jobs, ends expired ones, and keeps usage up to date.

expired leases                  queued again, or dead when failures are used up; not within one lease after an outage
dispatches lost in Redis        queued again
deadlines that passed           expired
engines without a heartbeat     their session ends and is settled
partitions, usage_hourly        created, summed
old months, unused texts        deleted (`retention`)
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from thothy_ai.crash_points import crash_point
from thothy_ai.db.fragments import ENGINE_SILENCE_SECONDS
from thothy_ai.db.schema import MONTHS_AHEAD, refuse_other_schema
from thothy_ai.db.states import JobState
from thothy_ai.queue.broker import Broker
from thothy_ai.queue.hints import Hint
from thothy_ai.queue.leader import Leader
from thothy_ai.queue.metrics import JOBS
from thothy_ai.queue.retention import Retention
from thothy_ai.settings import Settings
from thothy_ai.telemetry import configure_logging, serve_metrics

logger = logging.getLogger(__name__)

MINUTE, HOUR = 60.0, 3600.0
BATCH = 5000  # jobs that end in one transaction
USAGE_HOURS = 1  # before the current one


class Reaper:
    """Every rule is one statement; the leader runs them every `reap_interval_seconds`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._broker = Broker(settings)
        self._leader = Leader(settings, "reaper")
        self._retention = Retention(settings, self._leader.ask)
        self._rules: tuple[tuple[float, Callable[[], None]], ...] = (
            (0.0, self._leases),
            (0.0, self._expired),
            (0.0, self._dispatches),
            (MINUTE, self._cancelled),
            (MINUTE, self._usage),
            (MINUTE, self._sessions),
            (MINUTE, self._texts),
            (0.0, self._history),
            (HOUR, self._partitions),
        )
        self._last = dict.fromkeys(range(len(self._rules)), float("-inf"))
        self._more = False  # a rule has left work for the next round
        self._missing: set[Hint] = set()  # dispatches that the last round did not find in Redis
        self._moved: set[Hint] = set()  # of urgent jobs, into the ordinary list

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
        """Take back the jobs of silent workers, but give live ones a chance first.

        While Postgres was away no lease could be extended: a live worker has the length of a lease to extend its own.
        """
        if self._leader.led_seconds < self._settings.lease_seconds:
            return
        rows = self._leader.ask(
            "queue/reap_leases",
            retry_base_seconds=self._settings.retry_base_seconds,
            retry_cap_seconds=self._settings.retry_cap_seconds,
        )
        _log_ended("their lease expired", rows)

    def _expired(self) -> None:
        self._end("their deadline passed", "queue/reap_expired")

    def _cancelled(self) -> None:
        self._end("cancelled", "queue/reap_cancelled")

    def _end(self, why: str, name: str) -> None:
        """End a batch. After a full one the next round comes at once, with the other rules in between."""
        rows = self._leader.ask(name, limit=BATCH)
        self._more = self._more or len(rows) == BATCH
        _log_ended(why, rows)

    def _dispatches(self) -> None:
        """A dispatch that was not claimed in time and whose message is not in Redis is lost.

        It must be missing twice: a worker may have taken the message from Redis a moment ago.
        """
        timeout = self._settings.dispatch_timeout_seconds
        silent = {Hint(*row) for row in self._leader.ask("queue/unclaimed_dispatches", timeout_seconds=timeout)}
        missing = silent - self._waiting(silent) if silent else silent
        lost, self._missing = sorted(missing & self._missing), missing
        if lost:
            rows = self._leader.ask(
                "queue/reap_dispatches",
                ids=[hint.job_id for hint in lost],
                dispatch_nos=[hint.dispatch_no for hint in lost],
                timeout_seconds=timeout,
            )
            logger.warning("%d jobs are queued again: their messages were lost", len(rows))

    def _waiting(self, silent: set[Hint]) -> set[Hint]:
        """What waits in Redis. Urgent jobs that nobody takes go to the front of the ordinary list: workers of an
        earlier release consume no other.

        The next ones stay where they are until those are taken: without workers, the ordinary list would never cease to
        grow.
        """
        waiting = self._broker.waiting()
        if silent & waiting.urgent and not self._moved & waiting.ordinary:
            self._broker.move_urgent()
            self._moved = waiting.urgent
        return waiting.ordinary | waiting.urgent

    def _sessions(self) -> None:
        for row in self._leader.ask("queue/end_sessions", silence_seconds=ENGINE_SILENCE_SECONDS):
            logger.warning("engine session %s ended: no heartbeat for %d s", row.id, ENGINE_SILENCE_SECONDS)
        self._leader.ask("queue/settle_sessions")

    def _usage(self) -> None:
        self._leader.ask("queue/sum_usage", hours=USAGE_HOURS)

    def _texts(self) -> None:
        if self._leader.ask("queue/share_texts"):
            logger.info("no worker of an earlier version is left: long texts are stored once from now on")

    def _history(self) -> None:
        self._retention.step()

    def _partitions(self) -> None:
        self._leader.ask("queue/ensure_partitions", months_ahead=MONTHS_AHEAD)


def _log_ended(why: str, rows: Sequence[Any]) -> None:
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
