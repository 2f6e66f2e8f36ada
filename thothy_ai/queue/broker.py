"""`Broker`: the hints in Redis. Publishes hints in Celery's message format, and reads which are waiting."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from thothy_ai.errors import BrokerUnreachableError
from thothy_ai.queue.app import CONNECT_TIMEOUT, SOCKET_TIMEOUT, QueueApp, make_app
from thothy_ai.queue.hints import (
    TASK,
    Hint,
    ListLengths,
    count_waiting,
    engines_key,
    list_keys,
    list_names,
    parse_task_id,
    task_id,
)
from thothy_ai.queue.redis_server import reaching_redis
from thothy_ai.settings import Settings


class WaitingHints(NamedTuple):
    """The hints in each list, without elements that are not hints."""

    ordinary: set[Hint]
    urgent: set[Hint]


class Broker:
    """One process's access to Redis. Every method may raise `BrokerUnreachableError`; the next call reconnects."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._app = make_app(settings, QueueApp)
        self._redis = Redis.from_url(
            settings.require_redis_url(),
            socket_timeout=SOCKET_TIMEOUT,
            socket_connect_timeout=CONNECT_TIMEOUT,
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 1),  # once, to replace a connection that Redis has closed
        )

    def depth(self, engine: str) -> ListLengths:
        """How many hints wait for this engine."""
        return self.depths([engine])[engine]

    def depths(self, engines: Collection[str]) -> dict[str, ListLengths]:
        """How many hints wait for each of these engines, in one round trip."""
        names = list(engines)
        with self._reaching(), self._redis.pipeline(transaction=False) as pipeline:
            for name in names:
                for key in list_keys(self._settings, name):
                    pipeline.llen(key)
            lengths = list(map(int, pipeline.execute()))
        return dict(zip(names, map(ListLengths, lengths[::2], lengths[1::2]), strict=True))

    def total(self) -> ListLengths:
        """How many hints wait for all engines."""
        with self._reaching():
            return count_waiting(self._redis, self._settings)

    def engines(self) -> set[str]:
        """The engines that have lists."""
        with self._reaching():
            names: Any = self._redis.smembers(engines_key(self._settings))
        return {name.decode() for name in names}

    def waiting(self, engine: str) -> WaitingHints:
        """The hints that wait for this engine. The lists are kept shallow."""
        found = (map(_hint, self._elements(key)) for key in list_keys(self._settings, engine))
        return WaitingHints(*({hint for hint in hints if hint is not None} for hints in found))

    def delete(self, engines: Collection[str]) -> None:
        """Delete the lists of these engines: their hints are stale."""
        if keys := [key for name in engines for key in list_keys(self._settings, name)]:
            with self._reaching():
                self._redis.delete(*keys)
                self._redis.srem(engines_key(self._settings), *engines)

    def remove(self, hints: Collection[Hint], engine: str) -> None:
        """Remove these stale hints from the lists of this engine; hints published meanwhile stay."""
        for key in list_keys(self._settings, engine):
            with self._reaching(), self._redis.pipeline(transaction=False) as pipeline:
                for element in self._elements(key):
                    if _hint(element) in hints:
                        pipeline.lrem(key, 1, element)
                pipeline.execute()

    def publish(self, hints: Sequence[Hint], urgent: Sequence[Hint] = (), *, engine: str) -> None:
        """Publish in this order for this engine, `urgent` ones into their list, in one round trip."""
        names = list_names(engine)
        with self._reaching():
            self._redis.sadd(engines_key(self._settings), engine)
        with self._reaching(), self._app.producer_pool.acquire(block=True) as pooled:
            producer: Any = pooled  # kombu's stubs lack batches
            try:
                with producer.batch():
                    for hint in urgent:
                        producer.publish(**self._message(hint, names.urgent))
                    for hint in hints:
                        producer.publish(**self._message(hint, names.ordinary))
            except Exception:
                producer.connection.collect()  # a broken channel is not used again
                raise

    def close(self) -> None:
        self._redis.close()
        self._app.close()

    def _elements(self, key: str) -> list[Any]:
        with self._reaching():
            elements: Any = self._redis.lrange(key, 0, -1)
        return list(elements)

    def _message(self, hint: Hint, name: str) -> dict[str, Any]:
        identity = task_id(hint)
        arguments = (str(hint.job_id), hint.dispatch_no)
        message = self._app.amqp.as_task_v2(identity, TASK, arguments, argsrepr=identity, kwargsrepr="{}")
        return {
            "body": message.body,
            "exchange": "",  # directly to the list: no bindings that a FLUSHALL could remove
            "routing_key": name,
            "serializer": "json",
            "headers": message.headers,
            "retry": False,
            **message.properties,
        }

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Drop all connections after an error, since a server that has become a replica keeps them open."""
        try:
            with reaching_redis(self._settings):
                yield
        except BrokerUnreachableError:
            self._redis.connection_pool.disconnect()
            raise


def _hint(element: bytes) -> Hint | None:
    try:
        return parse_task_id(json.loads(element)["headers"]["id"])
    except (ValueError, KeyError, TypeError, RecursionError):  # any client of Redis can push anything
        return None
