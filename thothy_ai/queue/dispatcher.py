"""`Dispatcher`: moves due jobs from Postgres to Redis, in planned order, and keeps Redis shallow.

One dispatcher leads, others stand by. A job goes to `dispatched` first and is published after the commit; should the
process die in between, the reaper queues the job again.
"""

from __future__ import annotations

import logging
import math

from thothy_ai.crash_points import crash_point
from thothy_ai.db.schema import refuse_other_schema
from thothy_ai.errors import BrokerUnreachableError
from thothy_ai.queue import metrics
from thothy_ai.queue.broker import Broker
from thothy_ai.queue.collector import export_queue
from thothy_ai.queue.hints import Hint
from thothy_ai.queue.leader import Leader
from thothy_ai.settings import Settings
from thothy_ai.telemetry import configure_logging, serve_metrics

logger = logging.getLogger(__name__)

# Statistics are stale just when a queue fills fast: of a queue that was empty, Postgres would read and sort all of it.
BY_INDEX = ("SET enable_seqscan = off", "SET enable_bitmapscan = off")
BUSY_PART = 0.2  # of the interval, while there is more to dispatch
RIPEN_BATCH = 5000  # delayed jobs a round whose time comes
IDLE_TIMES = 4  # the interval, while there is nothing; a NOTIFY comes earlier


class Dispatcher:
    """The move queued -> dispatched, and what is in Redis."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._broker = Broker(settings)
        self._leader = Leader(settings, "dispatcher", channels=("thothy_queued",), session=BY_INDEX)

    def run(self) -> None:
        """Dispatch until `stop`."""
        try:
            self._leader.lead(self._round)
        finally:
            self._broker.close()

    @property
    def leads(self) -> bool:
        """Whether this is the one that dispatches."""
        return self._leader.leads

    def stop(self) -> None:
        """Stop at once; from any thread."""
        self._leader.stop()

    def stop_on_signals(self) -> None:
        """Stop on SIGTERM and SIGINT."""
        self._leader.stop_on_signals()

    def list_length(self) -> float:
        """How many hints wait in Redis, asked now: NaN when it cannot be reached."""
        try:
            return float(self._broker.depth())
        except BrokerUnreachableError:
            return math.nan

    def _round(self) -> float:
        depth = self._broker.depth()
        self._leader.ask("dispatch_ripen", limit=RIPEN_BATCH)
        hints = self._dispatch(depth)
        interval = self._settings.dispatch_interval_seconds
        if hints:
            return interval * BUSY_PART
        return interval if depth >= self._settings.dispatch_min_depth else interval * IDLE_TIMES

    def _dispatch(self, depth: int) -> list[Hint]:
        rows = self._leader.ask("dispatch", min_depth=self._settings.dispatch_min_depth, depth=depth)
        hints = [Hint(*row) for row in rows]
        if not hints:
            return hints
        crash_point("mid_dispatch")
        try:
            self._broker.publish(hints)
        except BrokerUnreachableError:
            self._leader.ask(
                "dispatch_undo",
                ids=[hint.job_id for hint in hints],
                dispatch_nos=[hint.dispatch_no for hint in hints],
            )
            raise
        crash_point("after_publish")
        metrics.DISPATCHED.inc(len(hints))
        return hints


def main(settings: Settings) -> None:
    """Run a dispatcher in this process until SIGTERM."""
    configure_logging(settings)
    refuse_other_schema(settings)
    dispatcher = Dispatcher(settings)
    dispatcher.stop_on_signals()
    export_queue(settings)
    metrics.LIST_LENGTH.set_function(dispatcher.list_length)
    serve_metrics(settings)
    dispatcher.run()
