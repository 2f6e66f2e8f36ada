"""`Transport`: kombu's Redis transport, hardened, and with fewer round trips to Redis.

It is hardened against unreadable list elements and a full Redis. Kombu needs nine commands and three round trips for
each message: to take it, to record that it is unacknowledged, and to acknowledge it. Here only the first message is
taken that way, by BRPOP. A script takes and records many of the messages behind it (`qos.py`), and one round trip
acknowledges many messages.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import Any

from kombu.transport import redis
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import loads
from redis.exceptions import ResponseError

from thothy_ai.queue.qos import UNREADABLE, QoS, dropped

logger = logging.getLogger(__name__)

kombu_channel: Any = redis.Channel  # its stubs lack these methods
_read = kombu_channel._brpop_read
_disconnect = kombu_channel._disconnect_pools
_close_clients = kombu_channel._close_clients


class HintChannel(redis.Channel):
    """Drops elements that are not kombu messages, which would end the original's consumer. Always closes."""

    QoS = QoS
    qos: Any  # these four are kombu's, with incomplete stubs
    connection: Any
    _queue_cycle: Any
    _closing: bool

    @property
    def has_address(self) -> bool:
        """Whether the connection has an address."""
        return self.connection is not None and self.connection.client is not None

    def _brpop_read(self, **options: Any) -> bool | None:
        """Deliver the message that BRPOP has waited for, and those that wait behind it."""
        read: bool | None = None
        try:
            read = _read(self, **options)
        except UNREADABLE as error:
            dropped(error)
        if self._closing:
            return read
        for queue, text, tag in self.qos.take(self._queue_cycle.consume(len(self.active_queues))):
            try:
                self.connection._deliver(loads(bytes_to_str(text)), queue)
            except UNREADABLE as error:
                dropped(error)
                self.basic_ack(tag)
        return read

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge. A message of a closed channel was restored and is delivered again; by then it is stale."""
        if self.has_address:
            super().basic_ack(delivery_tag, multiple)

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

    Channel = HintChannel
    connection_errors = (*redis.Transport.connection_errors, ResponseError)
    cycle: Any  # these two are kombu's, whose stubs have them as None
    channels: Any
    hub: Any = None  # the event loop that consumes, if any

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Begin to consume. The original leaves its connections open when Redis refuses its first commands."""
        self.hub = loop
        try:
            super().register_with_event_loop(connection, loop)
        except self.connection_errors:
            self.close_connection(connection)
            raise

    def close_connection(self, connection: Any) -> None:
        """Close all channels, then forget them. The original forgets them first, and then cannot put back a message
        that came after the last consumer was cancelled.
        """
        self.cycle.close()
        with ExitStack() as stack:  # if one fails to close, the others still do
            stack.callback(super().close_connection, connection)
            for channel in tuple(self.channels):
                stack.callback(channel.close)
