"""`EngineLists`: consumes the lists of the worker's engine, once the engine has told its name."""

from __future__ import annotations

from typing import Any

from celery import bootsteps

from thothy_ai.queue.app import ordinary_queue, urgent_queue
from thothy_ai.worker.celery.urgent import UrgentConsumer

LOOK_SECONDS = 0.2


class EngineLists(bootsteps.StartStopStep):
    """Adds them to both consumers of a connection, which consume nothing else."""

    requires = ("celery.worker.consumer.tasks:Tasks", UrgentConsumer)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        self._timer: Any = None
        self._name = ""  # of the engine whose lists are consumed; empty: none
        super().__init__(consumer, **kwargs)

    def start(self, consumer: Any) -> None:
        """Begin with a new connection, which does not consume any list yet."""
        self._name = ""
        self._look(consumer)
        self._timer = consumer.timer.call_repeatedly(LOOK_SECONDS, self._look, (consumer,))

    def stop(self, consumer: Any) -> None:  # noqa: ARG002 - Celery's signature
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, consumer: Any) -> None:
        name = consumer.pool.engine_name
        if name != self._name:
            for own, queue_of in ((consumer.task_consumer, ordinary_queue), (consumer.urgent_consumer, urgent_queue)):
                if self._name:
                    own.cancel_by_queue(queue_of(self._name).name)
                if name:
                    own.add_queue(queue_of(name))
                    own.consume()
            self._name = name
