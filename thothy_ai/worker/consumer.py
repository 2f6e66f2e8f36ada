"""Celery's consumer, with a handler that no message can break."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery.worker.consumer import Consumer

from thothy_ai.queue import metrics

logger = logging.getLogger(__name__)


class SteadyConsumer(Consumer):
    """Counts, acknowledges and drops what is no task of ours: the original logs all of it, or ends the worker."""

    connection_errors: tuple[type[Exception], ...]
    channel_errors: tuple[type[Exception], ...]

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], None]:
        """Celery's handler in a safety net. The broker's own errors pass: the consumer reconnects on them."""
        handle = super().create_task_handler(*args, **kwargs)

        def on_message(message: Any) -> None:
            try:
                if message.headers.get("eta"):  # Celery would keep it until then, and count it out of its prefetch
                    self._drop(message, "invalid_task")
                elif "task" not in message.headers:  # of the old protocol: its body could hold an eta too
                    self._drop(message, "unknown_format")
                else:
                    handle(message)
            except self.connection_errors + self.channel_errors:
                raise
            except Exception as error:  # noqa: BLE001 - anybody who reaches Redis can send anything
                self._drop(message, "unreadable", error)

        return on_message

    def on_unknown_message(self, body: Any, message: Any) -> None:  # noqa: ARG002 - Celery's signature
        """Drop a message that names no task."""
        self._drop(message, "unknown_format")

    def on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:  # noqa: ARG002 - Celery's signature
        """Drop a task that is not registered here."""
        self._drop(message, "unknown_task", exc)

    def on_invalid_task(self, body: Any, message: Any, exc: Exception) -> None:  # noqa: ARG002 - Celery's signature
        """Drop a task with fields that make no sense, or of a content type other than JSON."""
        self._drop(message, "invalid_task", exc)

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Drop a body that cannot be decoded."""
        self._drop(message, "unreadable", exc)

    def _drop(self, message: Any, reason: str, error: Exception | None = None) -> None:
        metrics.DROPPED.labels(reason).inc()
        logger.warning("a message is dropped, %s: %.200s", reason, repr(error))  # a stranger's text: no more of it
        message.ack_log_error(logger, self.connection_errors)
