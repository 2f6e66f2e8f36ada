"""`Reaper`: takes back lost jobs, ends expired ones, and keeps usage up to date.

expired leases                  queued again, or dead when failures are used up; not within one lease after an outage
dispatches lost in Redis        queued again
dispatches to lost engines      queued again at once; so are jobs that run on one whose worker is lost, too
deadlines that passed           expired
engines without a heartbeat     their session ends and is settled
partitions                      created
usage and drains                recorded (`books.py`)
old months, unused texts        deleted (`retention`)
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from thothy_ai.db.fragments import ENGINE_SILENCE_SECONDS
from thothy_ai.db.schema import MONTHS_AHEAD, refuse_other_schema
from thothy_ai.db.states import JobState, ReviewState
from thothy_ai.errors import DatabaseError
from thothy_ai.queue.books import Books
from thothy_ai.queue.broker import Broker
from thothy_ai.queue.dispatches import worker_silence
from thothy_ai.queue.hints import Hint
from thothy_ai.queue.leader import Leader
from thothy_ai.queue.metrics import JOBS, LEASES_LOST, NEEDED, REPUBLISHED
from thothy_ai.queue.redis_server import refuse_unusable_redis
from thothy_ai.queue.retention import Retention
from thothy_ai.queue.rules import Rule, Rules
from thothy_ai.queue.webhooks.deliverer import Deliverer
from thothy_ai.settings import Settings
from thothy_ai.telemetry import configure_logging, serve_metrics

logger = logging.getLogger(__name__)

LOOK, MINUTE, HOUR = 10.0, 60.0, 3600.0
SILENT_HEARTBEATS = 1.5  # of a worker, if its engine is silent as well
BATCH = 5000  # jobs that end in one transaction
LOCK_NOT_AVAILABLE = "55P03"  # SQLSTATE of a statement that waited for a lock for too long


class Reaper:
    """Every rule is one statement or two; the leader runs them every `reap_interval_seconds`, each by itself."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._broker = Broker(settings)
        self._leader = Leader(settings, "reaper")
        self.books = Books(settings)
        self.retention = Retention(settings, self._leader.ask)
        rules = (
            Rule("lost_machines", 0.0, self.lost_machines),
            Rule("leases", 0.0, self.leases),
            Rule("expired", 0.0, partial(self._end, "their deadline passed", "queue/reap_expired")),
            Rule("dispatches", 0.0, self.dispatches),
            Rule("silent_engines", 0.0, self.silent_engines),
            Rule("lost_engines", 0.0, self.lost_engines),
            Rule("gone_engines", MINUTE, self.gone_engines),
            Rule("cancelled", MINUTE, partial(self._end, "cancelled", "queue/reap_cancelled")),
            Rule("usage", MINUTE, self.books.usage),
            Rule("sessions", MINUTE, self.books.settle),
            Rule("drains", LOOK, self.books.drains),
            Rule("history", 0.0, self.retention.step),
            Rule("partitions", HOUR, self.partitions, statement_seconds=MINUTE),
        )
        self._rules = Rules(self._leader, rules)
        self._blocked_at = float("-inf")  # when a lock last blocked this reaper, and perhaps workers
        self._more = False  # a rule has left work for the next round
        self._missing: set[Hint] = set()  # dispatches that the last round did not find in Redis

    def run(self) -> None:
        try:
            self._leader.lead(self._round)
        finally:
            self._broker.close()
            self.books.close()

    def stop(self) -> None:
        """Stop at once; from any thread."""
        self._leader.stop()

    def stop_on_signals(self) -> None:
        """Stop on SIGTERM and SIGINT."""
        self._leader.stop_on_signals()

    def _round(self) -> float:
        self._more = False
        self._rules.run_due()
        return 0.0 if self._more else self._settings.reap_interval_seconds

    def leases(self) -> None:
        """Take back the jobs of silent workers, but give live ones a chance first.

        While Postgres was unreachable, or the jobs were locked, no lease could be extended: a live worker has the
        length of a lease to extend its own. Errors of other rules do not matter here.
        """
        extendable = min(self._leader.led_seconds, time.monotonic() - self._blocked_at)
        if extendable < self._settings.lease_seconds:
            return
        try:
            rows = self._leader.ask(
                "queue/reap_leases",
                retry_base_seconds=self._settings.retry_base_seconds,
                retry_cap_seconds=self._settings.retry_cap_seconds,
            )
        except DatabaseError as error:
            if error.sqlstate == LOCK_NOT_AVAILABLE:
                self._blocked_at = time.monotonic()
            raise
        LEASES_LOST.inc(len(rows))
        _log_ended("their lease expired", rows)

    def _end(self, why: str, name: str) -> None:
        """End a batch. After a full one the next round comes at once, with the other rules in between."""
        rows = self._leader.ask(name, limit=BATCH)
        self._more = self._more or len(rows) == BATCH
        _log_ended(why, rows)

    def dispatches(self) -> None:
        """A dispatch that was not claimed in time and whose message is not in Redis is lost.

        It must be missing twice, since a worker may just have taken the message from Redis.
        """
        timeout = self._settings.dispatch_timeout_seconds
        rows = self._leader.ask("queue/unclaimed_dispatches", timeout_seconds=timeout)
        waiting = [self._broker.waiting(engine) for engine in {row.engine_name for row in rows if row.engine_name}]
        found = set().union(*(each.ordinary | each.urgent for each in waiting))
        missing = {Hint(row.id, row.dispatch_no) for row in rows} - found
        lost, self._missing = sorted(missing & self._missing), missing
        if lost:
            rows = self._leader.ask(
                "queue/reap_dispatches",
                ids=[hint.job_id for hint in lost],
                dispatch_nos=[hint.dispatch_no for hint in lost],
                timeout_seconds=timeout,
            )
            REPUBLISHED.inc(len(rows))
            logger.warning("%d jobs are queued again: their messages were lost", len(rows))

    def lost_engines(self) -> None:
        """Take back jobs dispatched to engines that are gone or have lost their workers.

        While Postgres was unreachable, neither could send heartbeats: each has time to send one.
        """
        if self._leader.led_seconds < worker_silence(self._settings):
            return
        for row in self._leader.ask("queue/recall_lost", worker_seconds=worker_silence(self._settings)):
            logger.warning(
                "engine %s or its worker is lost: %d jobs that waited for it are queued again",
                row.engine_name,
                row.jobs,
            )
            self._broker.remove(set(map(Hint, row.ids, row.dispatch_nos)), row.engine_name)

    def gone_engines(self) -> None:
        """Delete the lists of engines that are gone, since a lost worker's messages return to them later."""
        if self._leader.led_seconds >= ENGINE_SILENCE_SECONDS:
            heard_of = {row.engine_name for row in self._leader.ask("queue/engines_heard_of")}
            self._broker.delete(self._broker.engines() - heard_of)

    def lost_machines(self) -> None:
        """Take back the jobs of engines that are lost with their workers, without waiting for leases."""
        silence = max(ENGINE_SILENCE_SECONDS, SILENT_HEARTBEATS * self._settings.heartbeat_seconds)
        if min(self._leader.led_seconds, time.monotonic() - self._blocked_at) < silence:
            return
        rows = self._leader.ask("queue/reap_lost", lease_seconds=self._settings.lease_seconds, worker_seconds=silence)
        _log_ended("their engine and its worker are lost", rows)

    def silent_engines(self) -> None:
        for row in self._leader.ask("queue/end_sessions", silence_seconds=ENGINE_SILENCE_SECONDS):
            logger.warning("engine %s is silent: its session %s ended at its last heartbeat", row.engine_name, row.id)

    def partitions(self) -> None:
        self._leader.ask("queue/ensure_partitions", months_ahead=MONTHS_AHEAD)


def _log_ended(why: str, rows: Sequence[Any]) -> None:
    for row in rows:
        if JobState(row.state).terminal:
            JOBS.labels(row.kind, row.state).inc()
        if row.state == JobState.SUCCEEDED:  # given up with a draft
            NEEDED.labels(row.kind, ReviewState.NEEDS_EDIT).inc()
    for state, jobs in Counter(row.state for row in rows).items():
        logger.warning("%d jobs are %s: %s", jobs, state, why)


def main(settings: Settings, beside: AbstractContextManager[None] | None = None) -> None:
    """Run a reaper in this process until SIGTERM, along with the delivery of webhooks and the caller's additions."""
    configure_logging(settings)
    refuse_other_schema(settings)
    refuse_unusable_redis(settings)
    reaper = Reaper(settings)
    reaper.stop_on_signals()
    serve_metrics(settings)
    with Deliverer(settings).running(), beside or nullcontext():
        reaper.run()
