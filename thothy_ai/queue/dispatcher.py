"""`Dispatcher`: moves due jobs from Postgres to Redis, in planned order, and keeps Redis shallow.

One dispatcher leads, others stand by. A job becomes `dispatched` first and is published after the commit; if the
process dies in between, the reaper queues the job again.

A job is urgent while one of lower priority is dispatched or running. Urgent jobs have a list of their own in Redis, for
which each worker keeps places free: they wait for no job of lower priority, in Redis or in a worker, and the engine
learns their priority. Where all jobs have the same priority, none is urgent.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

from thothy_ai.crash_points import crash_point
from thothy_ai.db.fragments import QUEUED_CHANNEL
from thothy_ai.db.schema import refuse_other_schema
from thothy_ai.errors import BrokerUnreachableError
from thothy_ai.queue import metrics
from thothy_ai.queue.broker import Broker, Depth
from thothy_ai.queue.collector import export_queue
from thothy_ai.queue.hints import Hint
from thothy_ai.queue.leader import Leader
from thothy_ai.settings import Settings
from thothy_ai.telemetry import configure_logging, serve_metrics

logger = logging.getLogger(__name__)

# Statistics are stale when a queue fills fast: Postgres would read and sort all of a queue that was empty before.
BY_INDEX = ("SET enable_seqscan = off", "SET enable_bitmapscan = off")
BUSY_FACTOR = 0.2  # times the interval, while there is more to dispatch
IDLE_FACTOR = 4  # times the interval, while there is nothing; a NOTIFY comes earlier
ADMIT_BATCH = 5000  # delayed jobs to admit per round
MAX_URGENT = 32  # urgent jobs that wait in Redis: so many may be ahead of one of a still higher priority


class Dispatcher:
    """Owns the transition queued -> dispatched, and what is in Redis."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._broker = Broker(settings)
        self._leader = Leader(settings, "dispatcher", channels=(QUEUED_CHANNEL,), session=BY_INDEX)

    def run(self) -> None:
        """Dispatch until `stop`."""
        try:
            self._leader.lead(self._round)
        finally:
            self._broker.close()

    @property
    def leads(self) -> bool:
        """Whether this dispatcher leads."""
        return self._leader.leads

    def stop(self) -> None:
        """Stop at once; from any thread."""
        self._leader.stop()

    def stop_on_signals(self) -> None:
        """Stop on SIGTERM and SIGINT."""
        self._leader.stop_on_signals()

    def list_lengths(self) -> tuple[float, float]:
        """How many hints wait in Redis, in all and of urgent jobs; NaN when it cannot be reached. From any thread."""
        try:
            depth = self._broker.depth()
        except BrokerUnreachableError:
            return math.nan, math.nan
        return float(sum(depth)), float(depth.urgent)

    def _round(self) -> float:
        depth = self._broker.depth()
        self._leader.ask("queue/admit_delayed", limit=ADMIT_BATCH)
        hints = self._dispatch(depth)
        interval = self._settings.dispatch_interval_seconds
        if hints:
            return interval * BUSY_FACTOR
        full = depth.ordinary >= self._settings.dispatch_min_depth or depth.urgent >= MAX_URGENT
        return interval if full else interval * IDLE_FACTOR

    def _dispatch(self, depth: Depth) -> list[Hint]:
        rows = self._leader.ask(
            "queue/dispatch",
            min_depth=self._settings.dispatch_min_depth,
            depth=depth.ordinary,
            urgent_places=MAX_URGENT - depth.urgent,
        )
        ordinary, urgent = by_urgency(rows)
        hints = ordinary + urgent
        if not hints:
            return hints
        crash_point("mid_dispatch")
        try:
            self._broker.publish(ordinary, urgent)
        except BrokerUnreachableError:
            self._leader.ask(
                "queue/undo_dispatch",
                ids=[hint.job_id for hint in hints],
                dispatch_nos=[hint.dispatch_no for hint in hints],
            )
            raise
        crash_point("after_publish")
        metrics.DISPATCHED.inc(len(hints))
        return hints


def by_urgency(rows: Sequence[Any]) -> tuple[list[Hint], list[Hint]]:
    """The hints of the rows of a dispatch: of ordinary jobs, and of urgent ones."""
    ordinary, urgent = (
        [Hint(row.id, row.dispatch_no) for row in rows if row.urgent is wanted] for wanted in (False, True)
    )
    return ordinary, urgent


def main(settings: Settings) -> None:
    """Run a dispatcher in this process until SIGTERM."""
    configure_logging(settings)
    refuse_other_schema(settings)
    dispatcher = Dispatcher(settings)
    dispatcher.stop_on_signals()
    export_queue(settings, dispatcher.list_lengths)
    serve_metrics(settings)
    dispatcher.run()
