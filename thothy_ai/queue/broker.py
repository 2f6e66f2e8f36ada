"""`Broker`: the hints in Redis. Publishes them in Celery's message format, and reads back which are waiting."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kombu.exceptions import KombuError, OperationalError
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from thothy_ai.errors import BrokerUnreachableError
from thothy_ai.queue.app import CONNECT_TIMEOUT, SOCKET_TIMEOUT, QueueApp, make_app
from thothy_ai.queue.hints import TASK, Hint, parse_task_id, task_id
from thothy_ai.settings import Settings, endpoint


class Broker:
    """One process's access to Redis. Every method may raise `BrokerUnreachableError`; the next call reconnects."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._app = make_app(settings, QueueApp)
        self._key = f"{settings.queue_prefix}{settings.queue_name}"
        self._redis = Redis.from_url(
            settings.require_redis_url(),
            socket_timeout=SOCKET_TIMEOUT,
            socket_connect_timeout=CONNECT_TIMEOUT,
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 1),  # once, to replace a connection that Redis has closed
        )

    def depth(self) -> int:
        """How many hints wait in Redis."""
        with self._reaching():
            length: Any = self._redis.llen(self._key)
            return int(length)

    def waiting(self) -> set[Hint]:
        """The hints that wait in Redis, without elements that are not hints. The list is kept shallow."""
        with self._reaching():
            elements: Any = self._redis.lrange(self._key, 0, -1)
        return {hint for hint in map(_hint, elements) if hint is not None}

    def publish(self, hints: Sequence[Hint]) -> None:
        """Publish in this order, in one round trip."""
        with self._reaching(), self._app.producer_pool.acquire(block=True) as pooled:
            producer: Any = pooled  # kombu's stubs lack batches
            try:
                with producer.batch():
                    for hint in hints:
                        producer.publish(**self._message(hint))
            except Exception:
                producer.connection.collect()  # a broken channel is not used again
                raise

    def close(self) -> None:
        """Close all connections."""
        self._redis.close()
        self._app.close()

    def _message(self, hint: Hint) -> dict[str, Any]:
        identity = task_id(hint)
        arguments = (str(hint.job_id), hint.dispatch_no)
        message = self._app.amqp.as_task_v2(identity, TASK, arguments, argsrepr=identity, kwargsrepr="{}")
        return {
            "body": message.body,
            "exchange": "",  # directly to the list: no bindings that a FLUSHALL could remove
            "routing_key": self._settings.queue_name,
            "serializer": "json",
            "headers": message.headers,
            "retry": False,
            **message.properties,
        }

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except (RedisError, KombuError, OperationalError, OSError) as error:
            where = endpoint(self._settings.require_redis_url())
            raise BrokerUnreachableError(
                f"Redis cannot be reached at {where}: {error or type(error).__name__}"
            ) from error


def _hint(element: bytes) -> Hint | None:
    try:
        return parse_task_id(json.loads(element)["headers"]["id"])
    except (ValueError, KeyError, TypeError, RecursionError):  # any client of Redis can push anything
        return None
