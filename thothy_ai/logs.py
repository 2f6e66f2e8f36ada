"""How the service's processes log: one line an event, to standard error."""

from __future__ import annotations

import logging
import warnings

from thothy_ai.settings import Settings

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
CHATTY = ("celery", "kombu", "sqlalchemy", "alembic", "amqp")


def configure(settings: Settings) -> None:
    """Set up logging for this process. Libraries speak from WARNING on, unless everything is asked for."""
    logging.basicConfig(level=settings.log_level, format=FORMAT)
    logging.captureWarnings(capture=True)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.DEBUG if settings.log_level == "DEBUG" else logging.WARNING)
    # Celery warns that tasks go on when the broker is lost, and that a container's user is root: both are meant.
    warnings.filterwarnings("ignore", module=r"celery\.")
