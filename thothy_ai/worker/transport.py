"""Kombu's Redis transport, which neither an unreadable list element nor a Redis that is full can break."""

from __future__ import annotations

import logging
from typing import Any

from kombu.transport import redis
from redis.exceptions import ResponseError

from thothy_ai.metrics import worker as metrics

logger = logging.getLogger(__name__)

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError)


_read: Any = redis.Channel._brpop_read  # type: ignore[attr-defined]  # not in kombu's stubs


class Channel(redis.Channel):
    """Drops what is not a message of kombu's: the original would let it end the consumer."""

    def _brpop_read(self, **options: Any) -> bool | None:
        try:
            read: bool | None = _read(self, **options)
        except UNREADABLE as error:
            metrics.DROPPED.labels("unreadable").inc()
            logger.warning("a list element is dropped, unreadable: %.200s", repr(error))  # a stranger's text
            return None
        return read


class Transport(redis.Transport):
    """The Redis transport with our channel. A refused write (disk or memory full) passes, as a lost line does.

    To kombu it is an error of the channel, and Celery would end the worker on it, with all that it has in flight.
    """

    Channel = Channel
    connection_errors = (*redis.Transport.connection_errors, ResponseError)
