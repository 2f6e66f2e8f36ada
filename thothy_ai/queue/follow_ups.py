"""Follow-ups: the jobs that an artifact asks for, with inherited options, as rows of `queue/follow_ups`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from uuid_utils.compat import uuid7

from thothy_ai.queue.canonical import Canonical
from thothy_ai.queue.texts import stored


class Parent(Protocol):
    """The properties that follow-ups inherit, including the model unless their kind names one."""

    @property
    def id(self) -> UUID: ...
    @property
    def tenant(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def deadline(self) -> datetime | None: ...
    @property
    def max_attempts(self) -> int: ...
    @property
    def max_compute_seconds(self) -> float | None: ...


def follow_up_row(parent: Parent, wanted: Canonical, job_id: UUID | None = None) -> dict[str, Any]:
    """The row of a follow-up with this id, or a new one; the request's JSON travels as text inside JSON."""
    kept = stored(wanted.request)
    return {
        "id": str(job_id or uuid7()),
        "parent_id": str(parent.id),
        "tenant": parent.tenant,
        "kind": wanted.kind,
        "priority": parent.priority,
        "deadline": parent.deadline.isoformat() if parent.deadline else None,
        "source_key": wanted.source_key,
        "digest": wanted.digest(parent.tenant),
        "max_attempts": parent.max_attempts,
        "max_compute_seconds": parent.max_compute_seconds,
        "model": wanted.model,
        "request": kept.request,
        "text_field": kept.field,
        "text_digest": kept.digest,
        "content": kept.text,
    }


def settled(
    rows: Sequence[dict[str, Any]], made: Sequence[Mapping[Any, Any]]
) -> tuple[list[dict[str, Any]], list[UUID]]:
    """The follow-ups to insert for the current version, and those that it supersedes.

    `made` are those of the parent, as rows of `queue/follow_ups_of`: those that this version also asks for stay, and
    none is made twice.
    """
    if rows and any(each["of_this_version"] for each in made):
        return [], []
    left = defaultdict[str, list[UUID]](list)
    for each in made:
        left[each["digest"]].append(each["id"])
    new = []
    for row in rows:
        if same := left[row["digest"]]:
            del same[0]
        else:
            new.append(row)
    return new, [id_ for ids in left.values() for id_ in ids]
