"""`Transport`: kombu's Redis transport, hardened, and with fewer round trips to Redis.

Hardened against unreadable list elements and a full Redis. Kombu needs nine commands and three round trips per message:
to take it, to record that it is unacknowledged, and to acknowledge it. Here BRPOP takes the first message that comes;
what else waits is taken and recorded in batches, each by one script, and acknowledgements that come together are sent
together.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable
from typing import Any

from kombu.transport import redis, virtual
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import loads
from redis.exceptions import ResponseError

from thothy_ai.queue import metrics

logger = logging.getLogger(__name__)

UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
MAX_TAKEN = 32  # at once: other workers and the event loop have their turns in between

# Takes the ARGV[2] oldest messages of the lists KEYS[3] and following, and records them as kombu does: in the hash
# KEYS[1] and, by the time ARGV[1], in the sorted set KEYS[2]. ARGV[3] and following are the lists' names in JSON.
# Returns for each message its list, from 0, its text, and its delivery tag; without one it is not recorded. If Redis is
# full and refuses to record, the message stays in its list.
TAKE = """
local left, taken = tonumber(ARGV[2]), {}
for list = 3, #KEYS do
    local messages = left > 0 and redis.call('LRANGE', KEYS[list], -left, -1) or {}
    for number = #messages, 1, -1 do
        local message, tag = messages[number], ''
        local read, fields = pcall(cjson.decode, message)
        if read and type(fields) == 'table' and type(fields.properties) == 'table'
            and type(fields.properties.delivery_tag) == 'string' then
            tag = fields.properties.delivery_tag
        end
        if tag ~= '' then
            redis.call('ZADD', KEYS[2], ARGV[1], tag)
            redis.call('HSET', KEYS[1], tag, '[' .. message .. ',"",' .. ARGV[list] .. ']')
        end
        table.insert(taken, {list - 3, message, tag})
    end
    if #messages > 0 then
        redis.call('LTRIM', KEYS[list], 0, -#messages - 1)
        left = left - #messages
    end
end
return taken
"""

kombu_channel: Any = redis.Channel  # its stubs lack these methods
_read = kombu_channel._brpop_read
_disconnect = kombu_channel._disconnect_pools
_close_clients = kombu_channel._close_clients


class QoS(redis.QoS):
    """The unacknowledged messages of a channel, recorded one by one or in batches."""

    def append_recorded(self, tag: str) -> None:
        """Count a message that Redis has recorded as unacknowledged."""
        virtual.QoS.append(self, None, tag)

    def append(self, message: Any, delivery_tag: str) -> None:
        """Record a message as unacknowledged, unless it is."""
        delivered: Any = self._delivered
        if delivery_tag not in delivered:
            super().append(message, delivery_tag)

    def remove(self, tags: Iterable[str]) -> None:
        """Remove from Redis what it recorded."""
        with self.pipe_or_acquire() as pipe:
            pipe.zrem(self.unacked_index_key, *tags).hdel(self.unacked_key, *tags).execute()


class Channel(redis.Channel):
    """Consumes and acknowledges in batches. Drops elements that are not kombu messages, which would end the original's
    consumer. Always closes.
    """

    QoS = QoS
    qos: Any  # these four are kombu's, whose stubs lack some of what is used here
    connection: Any
    _queue_cycle: Any
    _closing: bool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._acknowledged: list[str] = []  # and not yet removed from Redis
        super().__init__(*args, **kwargs)

    def _brpop_read(self, **options: Any) -> bool | None:
        """Deliver the message that BRPOP has waited for, and what else waits, as far as there are places."""
        read: bool | None = None
        try:
            read = _read(self, **options)
        except UNREADABLE as error:
            _dropped(error)
        if not self._closing:
            self._deliver_more()
        return read

    def _deliver_more(self) -> None:
        queues = self._queue_cycle.consume(len(self.active_queues))
        places = self.qos.can_consume_max_estimate()
        count = MAX_TAKEN if places is None else min(places, MAX_TAKEN)
        if not queues or not count:
            return
        taken = [(queues[number], message, bytes_to_str(tag)) for number, message, tag in self._take(queues, count)]
        for _, _, tag in taken:
            if tag:
                self.qos.append_recorded(tag)
        for queue, message, tag in taken:
            try:
                self.connection._deliver(loads(bytes_to_str(message)), queue)
            except UNREADABLE as error:
                _dropped(error)
                if tag:
                    self.basic_ack(tag)

    def _take(self, queues: list[str], count: int) -> list[tuple[int, bytes, bytes]]:
        names = [self.unacked_key, self.unacked_index_key, *queues]
        keys = [f"{self.global_keyprefix}{name}" for name in names]
        with self.conn_or_acquire() as client:
            taken: list[tuple[int, bytes, bytes]] = client.eval(
                TAKE, len(keys), *keys, time.time(), count, *map(json.dumps, queues)
            )
        return taken

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:  # noqa: ARG002 - kombu's signature
        """Acknowledge, together with what is acknowledged until the event loop's next turn.

        A message of a closed channel was restored and is delivered again; by then it is stale.
        """
        if self.connection is None or self.connection.client is None:  # kombu fails on one without an address
            return
        virtual.QoS.ack(self.qos, delivery_tag)
        self._acknowledged.append(delivery_tag)
        if self.connection.hub is None:
            self._acknowledge()
        elif len(self._acknowledged) == 1:
            self.connection.hub.call_soon(self._acknowledge)

    def _acknowledge(self) -> None:
        """Remove from Redis what is acknowledged. What Redis refuses to remove is delivered again, and is stale then.

        It must not stay in the prefetch count: with all places taken the worker would consume nothing more, and never
        learn that Redis accepts writes again.
        """
        tags, self._acknowledged = self._acknowledged, []
        if not tags:
            return
        try:
            self.qos.remove(tags)
        except Transport.connection_errors as error:
            logger.warning("acknowledgements of %d messages failed: %s", len(tags), error)

    def close(self) -> None:
        """Close, even when Redis refuses to restore unacknowledged messages: it keeps them, and restores them later.

        The original leaves its connections open then, and more with each attempt to connect.
        """
        try:
            self._acknowledge()
            super().close()
        except ResponseError as error:
            logger.warning("unacknowledged messages are restored later: %s", error)
        finally:
            _disconnect(self)  # restoring opens new ones
            _close_clients(self)


def _dropped(error: Exception) -> None:
    metrics.DROPPED.labels("unreadable").inc()
    logger.warning("list element dropped, unreadable: %.200s", repr(error))  # untrusted text


class Transport(redis.Transport):
    """The Redis transport with our channel. A refused write (disk or memory full) counts as a lost connection.

    To kombu it is a channel error, on which Celery would end the worker with everything in flight.
    """

    Channel = Channel
    connection_errors = (*redis.Transport.connection_errors, ResponseError)
    hub: Any = None  # the event loop that consumes, if any

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Begin to consume. The original leaves its connections open when Redis refuses its first commands."""
        self.hub = loop
        try:
            super().register_with_event_loop(connection, loop)
        except self.connection_errors:
            self.close_connection(connection)
            raise
