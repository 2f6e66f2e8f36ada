"""`Hint`: a message's content: a job id and a dispatch number. A hint, never the record; anything else is refused.

Hints wait in two lists in Redis: those of urgent jobs, and all others.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from thothy_ai.settings import Settings

TASK = "thothy.run"
MAX_INTEGER = 2**31 - 1  # of a Postgres integer


class MalformedHintError(Exception):
    """A message that is not a hint."""


class Hint(NamedTuple):
    """One dispatch of one job."""

    job_id: UUID
    dispatch_no: int


def urgent_name(settings: Settings) -> str:
    """The name of the list of urgent jobs' hints in Redis; that of the other list is the queue's name."""
    return f"{settings.queue_name}:urgent"


def list_keys(settings: Settings) -> tuple[str, str]:
    """The keys of both lists in Redis, the urgent one last."""
    return settings.queue_prefix + settings.queue_name, settings.queue_prefix + urgent_name(settings)


def task_id(hint: Hint) -> str:
    """The Celery task id of a hint's message, by which the reaper knows the dispatches that are in Redis."""
    return f"{hint.job_id}.{hint.dispatch_no}"


def parse(args: Any, kwargs: Any) -> Hint:
    """The hint in a task's arguments, which may be anything at all. Raises `MalformedHintError`."""
    if kwargs:
        raise MalformedHintError("has keyword arguments")
    if not isinstance(args, (list, tuple)) or len(args) != 2:
        raise MalformedHintError("does not have two arguments")
    job_id, dispatch_no = args
    if not isinstance(dispatch_no, int) or isinstance(dispatch_no, bool) or not 0 < dispatch_no <= MAX_INTEGER:
        raise MalformedHintError("its dispatch number is not one")
    return Hint(_uuid(job_id), dispatch_no)


def parse_task_id(text: Any) -> Hint | None:
    """The hint that `task_id` wrote, or None for any other id."""
    job_id, _, dispatch_no = text.partition(".") if isinstance(text, str) else ("", "", "")
    try:
        return parse((job_id, int(dispatch_no)), {})
    except (MalformedHintError, ValueError):
        return None


def _uuid(text: Any) -> UUID:
    if not isinstance(text, str) or len(text) != 36:
        raise MalformedHintError("its job id is not a UUID")
    try:
        return UUID(text)
    except ValueError:
        raise MalformedHintError("its job id is not a UUID") from None
