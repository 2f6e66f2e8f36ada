"""The service's requirements of Redis: one server that takes writes, and the rights of `COMMANDS`. Errors by cause.

A cluster is refused: the lists, the records and the scripts of a queue name several keys, which a cluster keeps apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kombu.exceptions import KombuError, OperationalError
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterError,
    ExecAbortError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from thothy_ai.errors import BrokerRefusedError, BrokerUnreachableError
from thothy_ai.queue.app import CONNECT_TIMEOUT
from thothy_ai.settings import Settings, endpoint

IN_CLUSTER_MODE: Final = "is in cluster mode, in which a queue's keys are on several servers"
NOT_A_CLUSTER: Final = "use a Redis or Valkey with cluster mode disabled; replicas and a failover are fine"
IS_REPLICA: Final = "is a replica, which takes no writes"
NAME_THE_PRIMARY: Final = "name the primary in THOTHY_REDIS_URL, or an address that follows it"
LOGIN_ADVICE: Final = "correct the user or the password in THOTHY_REDIS_URL, or THOTHY_REDIS_PASSWORD"
CAUSES: Final = (  # the last one is the base of others
    (AuthenticationError, "refuses the password: {}", LOGIN_ADVICE),
    (AuthenticationWrongNumberOfArgsError, "has no users, only a password: {}", LOGIN_ADVICE),
    (ReadOnlyError, IS_REPLICA, NAME_THE_PRIMARY),
    (OutOfMemoryError, "takes no writes: {}", "raise its maxmemory"),
    (BusyLoadingError, "is loading its data", "wait until it has"),
    (ResponseError, "refuses commands: {}", "see its log, and correct the cause"),
)
DENIED_COMMAND: Final = re.compile(r"'([\w|-]+)' command")  # in Redis' words
# Every command that the service and kombu send, with arguments; {0} and {1} are keys, {2} is a channel.
COMMANDS: Final = (
    "LLEN {0}", "LRANGE {0} 0 0", "LINDEX {0} 0", "LREM {0} 1 x", "LPUSH {0} x", "RPUSH {0} x", "RPOP {0}",
    "BRPOP {0} 1", "DEL {0}", "SMEMBERS {0}", "SADD {0} x", "SREM {0} x", "HGET {0} x", "HSET {0} x x", "HDEL {0} x",
    "ZADD {0} 1 x", "ZREM {0} x", "ZRANGE {0} 0 0", "ZREVRANGEBYSCORE {0} 1 0", "GET {0}", "SET {0} x PX 1",
    "ZCARD {0}", "ZREMRANGEBYSCORE {0} 0 0", "PEXPIRE {0} 1", "TIME",
    "EVAL return 2 {0} {1}", "EVALSHA 0 2 {0} {1}", "SCRIPT LOAD return", "PUBLISH {2} x",
    "SUBSCRIBE {2}", "UNSUBSCRIBE {2}", "PUBSUB NUMSUB {2}", "PING",
)  # fmt: skip


@contextmanager
def reaching_redis(settings: Settings) -> Iterator[None]:
    """Turns the client's and kombu's errors into ours, which name host, port and cause, never user or password.

    Raises `BrokerRefusedError` for a cluster and missing rights, `BrokerUnreachableError` otherwise.
    """
    try:
        yield
    except (RedisError, KombuError, OperationalError, OSError) as error:
        cause = error.__cause__ if isinstance(error.__cause__, RedisError) else error  # of kombu's
        raise _translated(cause, settings) from error


def refuse_unusable_redis(settings: Settings) -> None:
    """Every process of the service checks this first. An unreachable Redis is no error: processes wait for it.

    Raises `BrokerRefusedError`.
    """
    try:
        with checking_client(settings) as client:
            check_redis(client, settings)
    except BrokerRefusedError:
        raise
    except BrokerUnreachableError:
        pass


@contextmanager
def checking_client(settings: Settings) -> Iterator[Redis]:
    """A client that answers soon, or fails as in `reaching_redis`."""
    timeouts = {"socket_timeout": CONNECT_TIMEOUT, "socket_connect_timeout": CONNECT_TIMEOUT}
    url = settings.require_redis_url()
    client = Redis.from_url(url, decode_responses=True, retry=Retry(NoBackoff(), 0), **timeouts)
    with closing(client), reaching_redis(settings):
        yield client


def check_redis(client: Redis, settings: Settings) -> str:
    """The server's name and version. Nothing is changed there.

    Raises `BrokerRefusedError` for a cluster, a Sentinel and missing rights, `BrokerUnreachableError` for a server that
    takes no writes.
    """
    hello = _hello(client)
    where = endpoint(settings.require_redis_url())
    if hello.get("mode") == "cluster":
        raise BrokerRefusedError(f"Redis at {where} {IN_CLUSTER_MODE}", NOT_A_CLUSTER)
    if hello.get("mode") == "sentinel":
        raise BrokerRefusedError(f"{where} is a Sentinel, which keeps no data", NAME_THE_PRIMARY)
    if hello.get("role") in {"replica", "slave"}:
        raise BrokerUnreachableError(f"Redis at {where} {IS_REPLICA}", NAME_THE_PRIMARY)
    _check_rights(client, settings)
    return f"{hello.get('server', 'redis')} {hello.get('version', '')}".strip()


def _hello(client: Any) -> dict[str, Any]:
    """The server's description of itself, which no ACL can deny; empty if it is too old or a proxy."""
    try:
        said = client.execute_command("HELLO")
    except ResponseError:
        return {}
    return said if isinstance(said, dict) else dict(zip(said[::2], said[1::2], strict=True))


def _check_rights(client: Redis, settings: Settings) -> None:
    """Queue every command in a transaction that cannot be executed: the server checks rights, memory, disk and its role
    as commands are queued.
    """
    prefix = settings.queue_prefix
    names = (f"{prefix}unacked", f"{prefix}unacked_index", f"{prefix}watch")
    connection: Any = client.connection_pool.get_connection()  # its stubs lack types
    denied: list[ResponseError] = []

    def queued(text: str) -> None:
        connection.send_command(*(word.format(*names) for word in text.split(" ")))
        try:
            connection.read_response()
        except (NoPermissionError, ExecAbortError) as error:  # the latter if EXEC is denied
            if "no permissions" in str(error).lower():
                denied.append(error)

    try:
        for text in ("WATCH {0}", "UNWATCH", "MULTI"):
            queued(text)
        if not any("'multi'" in str(error) for error in denied):
            with suppress(ResponseError):
                queued("LLEN")  # it lacks its key: nothing that is queued is executed any more
            for text in COMMANDS:
                queued(text)
            queued("EXEC")
    finally:
        connection.disconnect()
        client.connection_pool.release(connection)
    if denied:
        raise _denial(denied, settings)


def _denial(errors: Sequence[ResponseError], settings: Settings) -> BrokerRefusedError:
    """Names the commands or keys denied to a user of Redis, and the missing rights."""
    url, prefix = settings.require_redis_url(), settings.queue_prefix
    user = unquote(urlsplit(url).username or "") or "default"
    rights: dict[str, str] = {}  # by denied command or key
    for text in map(str, errors):
        if command := DENIED_COMMAND.search(text):
            rights[command[1].upper().replace("|", " ")] = f"+{command[1]}"
        elif "channel" in text:
            rights[f"the channels {prefix}*"] = f"&{prefix}*"
        else:
            rights[f"the keys {prefix}*"] = f"~{prefix}*"
    return BrokerRefusedError(
        f"Redis at {endpoint(url)} denies its user {user} {', '.join(rights)}",
        f"let an administrator run `ACL SETUSER {user} {' '.join(rights.values())}`; docs/redis.md has all rights",
    )


def _translated(error: BaseException, settings: Settings) -> BrokerUnreachableError:
    where = endpoint(settings.require_redis_url())
    if isinstance(error, NoPermissionError):
        return _denial([error], settings)
    if isinstance(error, (ClusterError, ClusterCrossSlotError, AskError)):
        return BrokerRefusedError(f"Redis at {where} {IN_CLUSTER_MODE}", NOT_A_CLUSTER)
    for kind, says, advice in CAUSES:
        if isinstance(error, kind):
            return BrokerUnreachableError(f"Redis at {where} {says.format(error)}", advice)
    return BrokerUnreachableError(f"Redis cannot be reached at {where}: {str(error) or type(error).__name__}")
