"""Stores briefs under names, in versions that never change."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Engine, text

from thothy_ai.db.statements import statement
from thothy_ai.errors import InvalidJobError
from thothy_ai.jobs.api.brief import Brief
from thothy_ai.queue.canonical import invalid

TAKE_TURNS = text("SELECT pg_advisory_xact_lock(hashtextextended(:tenant || ' brief ' || :name, 0))")


@dataclass(frozen=True, slots=True)
class StoredBrief:
    """A version of a brief. A version without a body records that the brief was removed."""

    tenant: str
    name: str
    version: int
    body: dict[str, Any] | None
    saved_by: str
    saved_at: datetime


def save_brief(engine: Engine, tenant: str, name: str, values: object, by: str) -> int | None:
    """Store the next version of a brief; returns its number, or None if the newest version has the same content.

    Raises `InvalidJobError`, which names the field.
    """
    try:
        brief = Brief.model_validate(values)
        Brief(name=name)
    except ValidationError as error:
        raise invalid(error, Brief) from None
    if brief.name is not None or brief.version is not None:
        raise InvalidJobError("name", "is given when the brief is saved, not in it")
    body = brief.model_dump_json(exclude_defaults=True)
    if body == "{}":
        raise InvalidJobError("brief", "says nothing")
    return _save(engine, tenant, name, body, by)


def remove_brief(engine: Engine, tenant: str, name: str, by: str) -> int | None:
    """Remove the brief of a name; returns the number of the version that records this, None if there was no brief.

    Enqueued jobs keep their brief, and older versions can still be requested.
    """
    known = brief_versions(engine, tenant, name)
    return _save(engine, tenant, name, None, by) if known else None


def list_briefs(engine: Engine, tenant: str | None = None) -> list[StoredBrief]:
    """The newest version of each brief."""
    return _listed(engine, tenant, None)


def brief_versions(engine: Engine, tenant: str, name: str) -> list[StoredBrief]:
    """All versions of a brief, the newest first."""
    return _listed(engine, tenant, name)


def _listed(engine: Engine, tenant: str | None, name: str | None) -> list[StoredBrief]:
    with engine.connect() as connection:
        rows = connection.execute(statement("admin/list_briefs"), {"tenant": tenant, "name": name})
        return [StoredBrief(*row) for row in rows]


def _save(engine: Engine, tenant: str, name: str, body: str | None, by: str) -> int | None:
    with engine.begin() as connection:
        connection.execute(TAKE_TURNS, {"tenant": tenant, "name": name})
        given = {"tenant": tenant, "name": name, "body": body, "saved_by": by}
        version: int | None = connection.execute(statement("admin/save_brief"), given).scalar()
        return version
