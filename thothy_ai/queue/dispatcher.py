"""`Dispatcher`: moves due jobs from Postgres to the engines' lists in Redis, in planned order, and keeps Redis shallow.

One dispatcher leads, others stand by. A job becomes `dispatched` first and is published after the commit; if the
process dies in between, the reaper queues the job again. Which engine a job goes to is decided by the `JobRouter`.

A job is urgent at an engine while one of lower priority is dispatched to it or runs on it. Urgent jobs have lists of
their own in Redis, for which each worker keeps places free: they wait for no job of lower priority, in Redis or in a
worker, and the engine learns their priority. Where all jobs have the same priority, none is urgent.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable

from thothy_ai.crash_points import crash_point
from thothy_ai.db.fragments import QUEUED
from thothy_ai.db.schema import refuse_other_schema
from thothy_ai.errors import BrokerUnreachableError
from thothy_ai.queue import metrics
from thothy_ai.queue.broker import Broker
from thothy_ai.queue.collector import export_queue
from thothy_ai.queue.dispatches import Dispatch, Dispatches
from thothy_ai.queue.forecast.forecaster import Forecaster
from thothy_ai.queue.leader import Leader
from thothy_ai.queue.redis_server import refuse_unusable_redis
from thothy_ai.settings import Settings
from thothy_ai.telemetry import configure_logging, serve_metrics

logger = logging.getLogger(__name__)

# Statistics are stale when a queue fills fast: Postgres would read and sort all of a queue that was empty before.
BY_INDEX = ("SET enable_seqscan = off", "SET enable_bitmapscan = off")
BUSY_FACTOR = 0.2  # times the interval, while there is more to dispatch
IDLE_FACTOR = 4  # times the interval, while there is nothing; a NOTIFY comes earlier
ADMIT_BATCH = 5000  # delayed jobs to admit per round
MAX_URGENT = 32  # urgent jobs that wait for an engine, and may be ahead of one of a still higher priority


class Dispatcher:
    """Owns the transition queued -> dispatched, and what is in Redis."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._broker = Broker(settings)
        self._leader = Leader(settings, "dispatcher", channels=(QUEUED,), session=BY_INDEX)
        self._dispatches = Dispatches(settings, self._leader.ask)
        self._term = 0

    def run(self) -> None:
        try:
            self._leader.lead(self._round)
        finally:
            self._broker.close()

    @property
    def leads(self) -> bool:
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
            depth = self._broker.total()
        except BrokerUnreachableError:
            return math.nan, math.nan
        return float(sum(depth)), float(depth.urgent)

    def _round(self) -> float:
        if self._term != self._leader.term:
            self._dispatches.recall_sources()
            self._term = self._leader.term
        self._leader.ask("queue/admit_delayed", limit=ADMIT_BATCH)
        engines = self._dispatches.engines()
        depths = self._broker.depths([engine.name for engine in engines])
        fed = self._publish(self._dispatches.dispatch(engines, depths, MAX_URGENT))
        if len(engines) > 1:
            fed |= self._publish(self._dispatches.hand_over(engines, depths, fed))
        interval = self._settings.dispatch_interval_seconds
        if fed:
            return interval * BUSY_FACTOR
        least = self._settings.dispatch_min_depth
        full = any(depth.ordinary >= least or depth.urgent >= MAX_URGENT for depth in depths.values())
        return interval if full else interval * IDLE_FACTOR  # jobs may wait for a place in a full list

    def _publish(self, dispatches: Iterable[Dispatch]) -> set[str]:
        """Publish each as it is recorded; returns the engines that got jobs."""
        fed: set[str] = set()
        for dispatch in dispatches:
            crash_point("mid_dispatch")
            try:
                self._broker.publish(dispatch.ordinary, dispatch.urgent, engine=dispatch.engine)
            except BrokerUnreachableError:
                self._leader.ask(
                    "queue/undo_dispatch",
                    ids=[hint.job_id for hint in dispatch.hints],
                    dispatch_nos=[hint.dispatch_no for hint in dispatch.hints],
                )
                raise
            crash_point("after_publish")
            metrics.DISPATCHED.inc(len(dispatch.hints))
            fed.add(dispatch.engine)
        return fed


def main(settings: Settings) -> None:
    """Run a dispatcher in this process until SIGTERM."""
    configure_logging(settings)
    refuse_other_schema(settings)
    refuse_unusable_redis(settings)
    dispatcher = Dispatcher(settings)
    dispatcher.stop_on_signals()
    export_queue(settings, dispatcher.list_lengths)
    serve_metrics(settings)
    with Forecaster(settings).beside():
        dispatcher.run()
