"""`SteadyConsumer`: Celery's consumer with a message handler that no message can break."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery.worker.consumer import Consumer

from thothy_ai.queue import metrics

logger = logging.getLogger(__name__)


class SteadyConsumer(Consumer):
    """Counts, acknowledges and drops messages that are not our task: the original logs them, or ends the worker."""

    connection_errors: tuple[type[Exception], ...]
    channel_errors: tuple[type[Exception], ...]

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], None]:
        """Celery's handler, with its errors caught. The broker's own errors pass: the consumer reconnects on them."""
        handle = super().create_task_handler(*args, **kwargs)

        def on_message(message: Any) -> None:
            try:
                if message.headers.get("eta"):  # Celery would hold it until then, outside its prefetch count
                    self._drop(message, "invalid_task")
                elif "task" not in message.headers:  # the old protocol, whose body may hold an eta too
                    self._drop(message, "unknown_format")
                else:
                    handle(message)
            except LookupError as error:  # to kombu a connection error; here, a header that is missing
                self._drop(message, "unreadable", error)
            except self.connection_errors + self.channel_errors:
                raise
            except Exception as error:  # noqa: BLE001 - any client of Redis can send anything
                self._drop(message, "unreadable", error)

        return on_message

    def on_unknown_message(self, body: Any, message: Any) -> None:  # noqa: ARG002 - Celery's signature
        """Drop a message that names no task."""
        self._drop(message, "unknown_format")

    def on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:  # noqa: ARG002 - Celery's signature
        """Drop a task that is not registered here."""
        self._drop(message, "unknown_task", exc)

    def on_invalid_task(self, body: Any, message: Any, exc: Exception) -> None:  # noqa: ARG002 - Celery's signature
        """Drop a task with invalid fields, or with a content type other than JSON."""
        self._drop(message, "invalid_task", exc)

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Drop a body that cannot be decoded."""
        self._drop(message, "unreadable", exc)

    def _drop(self, message: Any, reason: str, error: Exception | None = None) -> None:
        metrics.DROPPED.labels(reason).inc()
        logger.warning("message dropped, %s: %.200s", reason, repr(error))  # untrusted text: keep it short
        message.ack_log_error(logger, self.connection_errors)
