"""How the service's processes log: one line an event, to standard error."""

from __future__ import annotations

import logging
import time
import warnings
from dataclasses import dataclass

from thothy_ai.settings import Settings

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
CHATTY = ("celery", "kombu", "sqlalchemy", "alembic", "amqp")
# While Redis is away these say so several times a second, one of them with a traceback.
REPETITIVE = ("celery.worker.consumer.consumer", "thothy_ai.worker.transport")
QUIET_SECONDS = 30.0


def configure(settings: Settings) -> None:
    """Set up logging for this process. Libraries speak from WARNING on, unless everything is asked for."""
    logging.basicConfig(level=settings.log_level, format=FORMAT)
    logging.captureWarnings(capture=True)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.DEBUG if settings.log_level == "DEBUG" else logging.WARNING)
    for name in REPETITIVE:
        logging.getLogger(name).addFilter(Sparingly())
    # Celery warns that tasks go on when the broker is lost, and that a container's user is root: both are meant.
    warnings.filterwarnings("ignore", module=r"celery\.")


@dataclass(slots=True)
class Said:
    """When a message was last let through, and how often it came since."""

    at: float
    unsaid: int = 0


class Sparingly(logging.Filter):
    """Lets each message through once in `QUIET_SECONDS`, whatever its arguments, and then says how often it came."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, Said] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record may pass."""
        now, template = time.monotonic(), str(record.msg)
        said = self._said.get(template)
        if said is not None and now - said.at < QUIET_SECONDS:
            said.unsaid += 1
            return False
        if said is not None and said.unsaid:
            record.msg, record.args = f"{record.getMessage().rstrip()} ({said.unsaid} more of these since)", None
        self._said[template] = Said(now)
        return True
