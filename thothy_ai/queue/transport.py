"""Kombu's Redis transport, which neither an unreadable list element nor a Redis that is full can break."""

from __future__ import annotations

import logging
from typing import Any

from kombu.transport import redis, virtual
from redis.exceptions import ResponseError

from thothy_ai.queue import metrics

logger = logging.getLogger(__name__)

UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


kombu_channel: Any = redis.Channel  # its stubs do not have
_read = kombu_channel._brpop_read
_disconnect = kombu_channel._disconnect_pools
_close_clients = kombu_channel._close_clients


class Channel(redis.Channel):
    """Drops what is not a message of kombu's: the original would let it end the consumer. Closes whatever happens."""

    def _brpop_read(self, **options: Any) -> bool | None:
        try:
            read: bool | None = _read(self, **options)
        except UNREADABLE as error:
            metrics.DROPPED.labels("unreadable").inc()
            logger.warning("a list element is dropped, unreadable: %.200s", repr(error))  # a stranger's text
            return None
        return read

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge. What came over a channel that is closed was given back and comes again; then it is stale.

        So does what Redis refuses to let go of. It must not keep its place among those in flight: with all places taken
        the worker would ask for nothing more, and so never learn that Redis writes again.
        """
        if self.connection is None or self.connection.client is None:  # kombu fails on one without an address
            return
        try:
            super().basic_ack(delivery_tag, multiple)
        except ResponseError as error:
            logger.warning("an acknowledgement is refused: %s", error)
            virtual.QoS.ack(self.qos, delivery_tag)

    def close(self) -> None:
        """Close, also when Redis refuses to take the unacknowledged back: it still has them, and gives them out later.

        The original leaves its connections open then, some more with each try to connect.
        """
        try:
            super().close()
        except ResponseError as error:
            logger.warning("unacknowledged messages stay where they are: %s", error)
        finally:
            _disconnect(self)  # giving back opens new ones
            _close_clients(self)


class Transport(redis.Transport):
    """The Redis transport with our channel. A refused write (disk or memory full) passes, as a lost line does.

    To kombu it is an error of the channel, and Celery would end the worker on it, with all that it has in flight.
    """

    Channel = Channel
    connection_errors = (*redis.Transport.connection_errors, ResponseError)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Begin to consume. The original leaves its connections open when Redis refuses what it asks for first."""
        try:
            super().register_with_event_loop(connection, loop)
        except self.connection_errors:
            self.close_connection(connection)
            raise
