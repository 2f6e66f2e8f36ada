"""`Hint`: a message's content: a job id and a dispatch number. A hint, never the record; anything else is refused.

Hints wait in lists in Redis, two for each engine: those of urgent jobs, and all others.

    {prefix}jobs@{engine}   {prefix}jobs@{engine}:urgent

The set {prefix}engines has the names of the engines that have lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from thothy_ai.settings import Settings

if TYPE_CHECKING:
    from redis import Redis

TASK = "thothy.run"
QUEUE = "jobs"  # prefix of the lists' names
MAX_INTEGER = 2**31 - 1  # of a Postgres integer


class MalformedHintError(Exception):
    """A message that is not a hint."""


class Hint(NamedTuple):
    """One dispatch of one job."""

    job_id: UUID
    dispatch_no: int


class ListLengths(NamedTuple):
    """How many hints wait in lists."""

    ordinary: int
    urgent: int


class ListNames(NamedTuple):
    """The names of an engine's lists, after the prefix."""

    ordinary: str
    urgent: str


def list_names(engine: str) -> ListNames:
    return ListNames(f"{QUEUE}@{engine}", f"{QUEUE}@{engine}:urgent")


def list_keys(settings: Settings, engine: str) -> ListNames:
    """The keys of both lists in Redis."""
    return ListNames(*(settings.queue_prefix + name for name in list_names(engine)))


def engines_key(settings: Settings) -> str:
    """The key of the set of engines that have lists."""
    return f"{settings.queue_prefix}engines"


def count_waiting(client: Redis, settings: Settings) -> ListLengths:
    """How many hints wait in all lists. Raises `RedisError`."""
    names: Any = client.smembers(engines_key(settings))
    keys = [list_keys(settings, name.decode() if isinstance(name, bytes) else name) for name in names]
    ordinary, urgent = (sum(int(str(client.llen(each[place]))) for each in keys) for place in (0, 1))
    return ListLengths(ordinary, urgent)


def task_id(hint: Hint) -> str:
    """The Celery task id of a hint's message, by which the reaper finds dispatches in Redis."""
    return f"{hint.job_id}.{hint.dispatch_no}"


def parse(args: Any, kwargs: Any) -> Hint:
    """The hint in a task's untrusted arguments. Raises `MalformedHintError`."""
    if kwargs:
        raise MalformedHintError("has keyword arguments")
    if not isinstance(args, (list, tuple)) or len(args) != 2:
        raise MalformedHintError("does not have two arguments")
    job_id, dispatch_no = args
    if not isinstance(dispatch_no, int) or isinstance(dispatch_no, bool) or not 0 < dispatch_no <= MAX_INTEGER:
        raise MalformedHintError("its dispatch number is not a whole number")
    if not isinstance(job_id, str) or len(job_id) != 36:
        raise MalformedHintError("its job id is not a UUID")
    try:
        return Hint(UUID(job_id), dispatch_no)
    except ValueError:
        raise MalformedHintError("its job id is not a UUID") from None


def parse_task_id(text: Any) -> Hint | None:
    """The hint that `task_id` wrote, or None for any other id."""
    job_id, _, dispatch_no = text.partition(".") if isinstance(text, str) else ("", "", "")
    try:
        return parse((job_id, int(dispatch_no)), {})
    except (MalformedHintError, ValueError):
        return None
