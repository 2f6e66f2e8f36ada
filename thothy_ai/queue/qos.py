"""`QoS`: the unacknowledged messages of a channel. Messages are taken and acknowledged in batches.

Redis holds a record of each unacknowledged message, from which it is restored if its consumer is lost.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from kombu.transport import redis, virtual
from redis.exceptions import DataError

from thothy_ai.queue import metrics

logger = logging.getLogger(__name__)

UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, DataError)
MAX_TAKEN = 32  # per batch, so that other workers and the event loop get their turns
MAX_BYTES = 65_536  # of a message taken in a batch, since Redis reads it meanwhile; a hint has about 1,000

# Takes the oldest messages of the lists KEYS[3] and following, ARGV[2] at most, and records them as kombu does: in the
# hash KEYS[1] and, with the time ARGV[1], in the sorted set KEYS[2]. ARGV[4] and following are the lists' names in
# JSON. Returns the number of its list (from 0), the text and the delivery tag of each message. Everything taken is
# recorded, its text unchanged. Each list is left at the first element that is longer than ARGV[3] bytes, or whose tag
# is not like kombu's: BRPOP takes it. A full Redis refuses the first record, before anything is taken.
TAKE = """
local function tag_of(message)
    if #message > tonumber(ARGV[3]) then return nil end
    local read, fields = pcall(cjson.decode, message)
    local properties = read and type(fields) == 'table' and fields.properties
    local tag = type(properties) == 'table' and properties.delivery_tag
    return type(tag) == 'string' and tag:match('^[%w-]+$')
end

local taken = {}
for list = 3, #KEYS do
    while #taken < tonumber(ARGV[2]) do
        local message = redis.call('LINDEX', KEYS[list], -1)
        local tag = message and tag_of(message)
        if not tag then break end
        redis.call('ZADD', KEYS[2], ARGV[1], tag)
        redis.call('HSET', KEYS[1], tag, '[' .. message .. ',"",' .. ARGV[list + 1] .. ']')
        redis.call('RPOP', KEYS[list])
        table.insert(taken, {list - 3, message, tag})
    end
end
return taken
"""


class Taken(NamedTuple):
    """A message taken in a batch, as it was in the list of this name."""

    queue: str
    text: bytes
    tag: str


class QoS(redis.QoS):
    """Kombu's, with fewer round trips to Redis."""

    channel: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._recorded: set[str] = set()  # by the script, and not yet delivered
        self._acknowledged: list[str] = []  # and not yet removed from Redis

    def take(self, queues: Sequence[str]) -> list[Taken]:
        """Take waiting messages from these lists, in the lists' order, as far as the prefetch count allows."""
        places = self.can_consume_max_estimate()
        count = MAX_TAKEN if places is None else min(places, MAX_TAKEN)
        if not queues or not count:
            return []
        names = (self.unacked_key, self.unacked_index_key, *queues)
        keys = [f"{self.channel.global_keyprefix}{name}" for name in names]  # kombu prefixes no key of EVAL
        with self.channel.conn_or_acquire() as client:
            found = client.eval(TAKE, len(keys), *keys, time.time(), count, MAX_BYTES, *map(json.dumps, queues))
        taken = [Taken(queues[number], text, tag.decode()) for number, text, tag in found]
        for each in taken:
            virtual.QoS.append(self, None, each.tag)
            self._recorded.add(each.tag)
        return taken

    def append(self, message: Any, delivery_tag: str) -> None:
        """Record a message as unacknowledged, unless the script has."""
        if delivery_tag in self._recorded:
            self._recorded.remove(delivery_tag)
        else:
            super().append(message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message, together with all others until the event loop's next turn.

        It leaves the prefetch count at once, whatever Redis says: with all places taken the worker would consume
        nothing more, and never learn that Redis accepts writes again.
        """
        virtual.QoS.ack(self, delivery_tag)
        self._recorded.discard(delivery_tag)  # of an unreadable message, which is never delivered
        self._acknowledged.append(delivery_tag)
        hub = self.channel.connection.hub
        if hub is None:
            self.remove_acknowledged()
        elif len(self._acknowledged) == 1:
            hub.call_soon(self.remove_acknowledged)

    def remove_acknowledged(self) -> None:
        """Remove the records of acknowledged messages. A message whose record stays is delivered again, and is stale
        then.
        """
        tags, self._acknowledged = self._acknowledged, []
        if tags and self.channel.has_address:
            try:
                self._remove(tags)
            except self.channel.connection_errors as error:
                logger.warning("acknowledgements not sent: %s", error)

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Restore unacknowledged messages when the channel closes."""
        self.remove_acknowledged()
        super().restore_unacked_once(stderr)

    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:
        """Restore a message. Drop an unreadable record, on which the original would end each worker."""
        try:
            super().restore_by_tag(tag, client, leftmost)
        except UNREADABLE as error:
            dropped(error)
            self._remove([tag])

    def _remove(self, tags: Collection[Any]) -> None:
        with self.pipe_or_acquire() as pipe:
            pipe.zrem(self.unacked_index_key, *tags).hdel(self.unacked_key, *tags).execute()


def dropped(error: Exception) -> None:
    """Count and log an unreadable message."""
    metrics.DROPPED.labels("unreadable").inc()
    logger.warning("list element or record dropped, unreadable: %.200s", repr(error))  # untrusted text
