"""`Transport`: kombu's Redis transport, hardened against unreadable list elements and a full Redis."""

from __future__ import annotations

import logging
from typing import Any

from kombu.transport import redis, virtual
from redis.exceptions import ResponseError

from thothy_ai.queue import metrics

logger = logging.getLogger(__name__)

UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


kombu_channel: Any = redis.Channel  # its stubs lack these methods
_read = kombu_channel._brpop_read
_disconnect = kombu_channel._disconnect_pools
_close_clients = kombu_channel._close_clients


class Channel(redis.Channel):
    """Drops elements that are not kombu messages, which would end the original's consumer. Always closes."""

    def _brpop_read(self, **options: Any) -> bool | None:
        try:
            read: bool | None = _read(self, **options)
        except UNREADABLE as error:
            metrics.DROPPED.labels("unreadable").inc()
            logger.warning("list element dropped, unreadable: %.200s", repr(error))  # untrusted text
            return None
        return read

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge. A message of a closed channel was restored and is delivered again; by then it is stale.

        The same holds for a message whose acknowledgement Redis refuses. It must not stay in the prefetch count: with
        all places taken the worker would consume nothing more, and never learn that Redis accepts writes again.
        """
        if self.connection is None or self.connection.client is None:  # kombu fails on one without an address
            return
        try:
            super().basic_ack(delivery_tag, multiple)
        except ResponseError as error:
            logger.warning("acknowledgement refused: %s", error)
            virtual.QoS.ack(self.qos, delivery_tag)

    def close(self) -> None:
        """Close, even when Redis refuses to restore unacknowledged messages: it keeps them, and restores them later.

        The original leaves its connections open then, and more with each attempt to connect.
        """
        try:
            super().close()
        except ResponseError as error:
            logger.warning("unacknowledged messages are restored later: %s", error)
        finally:
            _disconnect(self)  # restoring opens new ones
            _close_clients(self)


class Transport(redis.Transport):
    """The Redis transport with our channel. A refused write (disk or memory full) counts as a lost connection.

    To kombu it is a channel error, on which Celery would end the worker with everything in flight.
    """

    Channel = Channel
    connection_errors = (*redis.Transport.connection_errors, ResponseError)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Begin to consume. The original leaves its connections open when Redis refuses its first commands."""
        try:
            super().register_with_event_loop(connection, loop)
        except self.connection_errors:
            self.close_connection(connection)
            raise
