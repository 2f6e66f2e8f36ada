"""Celery's consumer, with a handler that no message can break."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery.worker.consumer import Consumer

from thothy_ai.metrics import worker as metrics

logger = logging.getLogger(__name__)


class SteadyConsumer(Consumer):
    """Acknowledges and drops messages that Celery cannot even look at: the original would end the worker."""

    connection_errors: tuple[type[Exception], ...]
    channel_errors: tuple[type[Exception], ...]

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], None]:
        """Celery's handler in a safety net. The broker's own errors pass: the consumer reconnects on them."""
        handle = super().create_task_handler(*args, **kwargs)

        def on_message(message: Any) -> None:
            try:
                handle(message)
            except self.connection_errors + self.channel_errors:
                raise
            except Exception as error:  # noqa: BLE001 - anybody who reaches Redis can send anything
                metrics.DROPPED.labels("unreadable").inc()
                logger.warning("a message is dropped, unreadable: %r", error)
                message.ack_log_error(logger, self.connection_errors)

        return on_message
