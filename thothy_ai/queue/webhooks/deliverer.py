"""`Deliverer`: ends batches and delivers webhooks, on a thread of the reaper's process.

It has its own connection and lead, so that slow receivers and statements do not block the reaper. The leader takes due
deliveries, sends each on a thread, and records the results. A delivery whose result was not recorded, because its
process died, is due again after `LEASE_SECONDS`: receivers may get a message twice, with one id.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager
from typing import Any

from thothy_ai.db.fragments import WEBHOOKS
from thothy_ai.queue.leader import Leader
from thothy_ai.queue.metrics import WEBHOOK_ATTEMPTS
from thothy_ai.queue.webhooks.addresses import networks
from thothy_ai.queue.webhooks.post import SHOWN_CHARS, PostResult, post
from thothy_ai.queue.webhooks.signing import headers, receiver_secret
from thothy_ai.settings import Settings

logger = logging.getLogger(__name__)

THREADS = 16  # deliveries in flight
PER_ORIGIN = 4  # at once to one origin
LEASE_SECONDS = 60.0
BATCHES = 1000  # that end in one transaction
INTERVAL = 2.0  # seconds between two rounds; a NOTIFY comes earlier
BUSY_INTERVAL = 0.05  # while deliveries are in flight
MIN_INTERVAL = 0.2  # between two looks for batches that have ended
HOUR = 3600.0
KEPT_DAYS, DEAD_KEPT_DAYS = 7, 30
FIRST_DELAY, LAST_DELAY, GROWTH = 10.0, 7200.0, 3.0


def delay_after(attempts: int, chance: float) -> float:
    """Seconds until the next of `attempts`; `chance` is uniform in [0, 1): exponential, half of it random."""
    return min(LAST_DELAY, FIRST_DELAY * GROWTH ** min(attempts - 1, 20)) * (0.5 + 0.5 * chance)


class Deliverer:
    """Owns the rows of `webhook_delivery` from due to delivered or dead."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._leader = Leader(settings, "webhooks", channels=(WEBHOOKS,))
        self._allowed = networks(settings.webhook_networks)
        self._sent: dict[Future[PostResult], Any] = {}
        self._last_ended = self._last_purge = float("-inf")
        self._warned = False

    def run(self) -> None:
        self._leader.lead(self._round)

    def stop(self) -> None:
        """Stop at once; from any thread. What is in flight is sent again later."""
        self._leader.stop()

    def running(self) -> AbstractContextManager[None]:
        """Deliver on a thread of its own until the end of the block."""
        return self._leader.leading(self._round)

    def _round(self) -> float:
        now = time.monotonic()
        if now - self._last_purge >= HOUR:
            self._leader.ask("queue/purge_deliveries", days=KEPT_DAYS, dead_days=DEAD_KEPT_DAYS)
            self._last_purge = now
        if looks := now - self._last_ended >= MIN_INTERVAL:  # any end of a job can be its batch's
            self._leader.ask("queue/end_batches", limit=BATCHES)
            self._last_ended = time.monotonic()
        self._record()
        if len(self._sent) < THREADS:
            self._send()
        if not self._sent:
            return INTERVAL if looks else MIN_INTERVAL
        wait(self._sent, BUSY_INTERVAL, FIRST_COMPLETED)
        return 0.0

    def _send(self) -> None:
        secrets = self._settings.reveal_webhook_secrets()
        if not secrets:
            [row] = self._leader.ask("queue/waiting_deliveries")
            if row.waiting and not self._warned:
                logger.warning("webhooks wait: THOTHY_WEBHOOK_SECRETS is not set")
            self._warned = row.waiting
            return
        busy = {row.origin for row in self._sent.values()}
        rows = self._leader.ask(
            "queue/take_deliveries",
            busy=list(busy),
            per_origin=PER_ORIGIN,
            limit=THREADS - len(self._sent),
            lease_seconds=LEASE_SECONDS,
        )
        for row in rows:
            future: Future[PostResult] = Future()
            self._sent[future] = row
            threading.Thread(target=self._post_into, args=(future, row, secrets), name="webhook", daemon=True).start()

    def _post_into(self, future: Future[PostResult], row: Any, secrets: tuple[str, ...]) -> None:
        try:
            body = json.dumps(row.payload, ensure_ascii=False, separators=(",", ":")).encode()
            theirs = (receiver_secret(secret, row.tenant) for secret in secrets)
            plain = {"content-type": "application/json", "user-agent": "thothy-ai"}
            signed = plain | headers(str(row.id), body, theirs, int(time.time()))
            future.set_result(post(row.url, body, signed, self._allowed))
        except Exception as error:
            logger.exception("webhook %s failed", row.id)
            future.set_result(PostResult(error=repr(error)[:SHOWN_CHARS]))

    def _record(self) -> None:
        """Record the results that have arrived. While Postgres is unreachable, they are kept for the next round."""
        done = {future: row for future, row in self._sent.items() if future.done()}
        if not done:
            return
        answers = [future.result() for future in done]
        rows = self._leader.ask(
            "queue/record_deliveries",
            ids=[row.id for row in done.values()],
            delivered=[answer.delivered for answer in answers],
            gone=[answer.final for answer in answers],
            statuses=[answer.status for answer in answers],
            errors=[answer.error for answer in answers],
            delays=[delay_after(row.attempts, random.random()) for row in done.values()],  # noqa: S311 - jitter
        )
        self._sent = {future: row for future, row in self._sent.items() if future not in done}
        for row in rows:
            WEBHOOK_ATTEMPTS.labels("failed" if row.state == "waiting" else row.state).inc()
            if row.state == "dead":
                logger.warning("webhook %s is dead; attempts: %d; last error: %s", row.id, row.attempts, row.error)
