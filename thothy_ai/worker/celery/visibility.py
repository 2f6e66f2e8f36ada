"""`VisibilityRefresh`: keeps messages that a worker holds for long invisible to other workers."""

from __future__ import annotations

import time
from typing import Any

from celery import bootsteps

from thothy_ai.worker.celery.urgent import UrgentConsumer

REFRESHES_PER_TIMEOUT = 4


class VisibilityRefresh(bootsteps.StartStopStep):
    """Renews the timestamps of this worker's unacknowledged messages, which kombu never does.

    Without it, a job that takes longer than the visibility timeout would be redelivered while it runs.
    """

    requires = ("celery.worker.consumer.tasks:Tasks", UrgentConsumer)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        self._timer: Any = None
        super().__init__(consumer, **kwargs)

    def start(self, consumer: Any) -> None:
        """Refresh a few times per visibility timeout, from Celery's event loop."""
        pause = consumer.app.conf.broker_transport_options["visibility_timeout"] / REFRESHES_PER_TIMEOUT
        self._timer = consumer.timer.call_repeatedly(pause, refresh, (consumer,))

    def stop(self, consumer: Any) -> None:  # noqa: ARG002 - Celery's signature
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def refresh(consumer: Any) -> None:
    """Set the timestamps of all unacknowledged messages of this consumer to now, those of urgent jobs included."""
    for channel in (consumer.task_consumer.channel, consumer.urgent_consumer.channel):
        held = channel.qos._delivered.keys() - channel.qos._dirty  # kombu has no public way to ask
        if held:
            with channel.conn_or_acquire() as client:
                client.zadd(channel.unacked_index_key, dict.fromkeys(held, time.time()), xx=True)
