"""Logging to standard error and metrics for Prometheus, set up per process."""

from __future__ import annotations

import logging
import time
import warnings
from dataclasses import dataclass

from prometheus_client import start_http_server

from thothy_ai.errors import ConfigError
from thothy_ai.settings import Settings

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# SQLAlchemy logs of a pool under the module of its class, which is the last one.
CHATTY = ("celery", "kombu", "sqlalchemy", "alembic", "amqp", "thothy_ai.db.driver")
# While Redis is unreachable, these log several lines per second, one of them with a traceback.
REPETITIVE = ("celery.worker.consumer.consumer", "thothy_ai.queue.qos", "thothy_ai.queue.transport")
QUIET_SECONDS = 30.0


def configure_logging(settings: Settings) -> None:
    """Set up logging for this process. Libraries log from WARNING on, except at level DEBUG."""
    logging.basicConfig(level=settings.log_level, format=FORMAT)
    logging.captureWarnings(capture=True)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.DEBUG if settings.log_level == "DEBUG" else logging.WARNING)
    for name in REPETITIVE:
        logging.getLogger(name).addFilter(RateLimitFilter())
    # Celery warns that tasks continue when the broker is lost, and that a container's user is root. Both are intended.
    warnings.filterwarnings("ignore", module=r"celery\.")


@dataclass(slots=True)
class Seen:
    """When a message last passed the filter, and how often it has been suppressed since."""

    at: float
    suppressed: int = 0


class RateLimitFilter(logging.Filter):
    """Passes each message once per `QUIET_SECONDS`, whatever its arguments, and adds how many were suppressed."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, Seen] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record may pass."""
        now, template = time.monotonic(), str(record.msg)
        seen = self._seen.get(template)
        if seen is not None and now - seen.at < QUIET_SECONDS:
            seen.suppressed += 1
            return False
        if seen is not None and seen.suppressed:
            record.msg, record.args = f"{record.getMessage().rstrip()} ({seen.suppressed} more of these since)", None
        self._seen[template] = Seen(now)
        return True


def serve_metrics(settings: Settings) -> None:
    """Serve metrics on `metrics_host:metrics_port` from a thread, unless the port is 0. Raises `ConfigError`."""
    if not settings.metrics_port:
        return
    try:
        start_http_server(settings.metrics_port, settings.metrics_host)
    except OSError as error:
        where = f"{settings.metrics_host}:{settings.metrics_port}"
        raise ConfigError(f"metrics cannot be served on {where}: {error.strerror}") from None
