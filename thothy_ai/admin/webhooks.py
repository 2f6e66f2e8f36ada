"""Deliveries of webhooks: count, list and retry them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Engine

from thothy_ai.db.statements import statement
from thothy_ai.queue.webhooks.signing import receiver_secret
from thothy_ai.settings import Settings

STATES = ("waiting", "delivered", "dead")


def counts(engine: Engine, tenant: str | None = None) -> dict[str, int]:
    """The number of deliveries by state, of one tenant or of all."""
    with engine.connect() as connection:
        rows = connection.execute(statement("admin/count_deliveries"), {"tenant": tenant})
        found = {row.state: row.deliveries for row in rows}
    return {state: found.get(state, 0) for state in STATES}


def deliveries(engine: Engine, *, state: str | None, tenant: str | None, limit: int) -> list[dict[str, Any]]:
    wanted = {"state": state, "tenant": tenant, "limit": limit}
    with engine.connect() as connection:
        return [dict(row) for row in connection.execute(statement("admin/list_deliveries"), wanted).mappings()]


def retry(engine: Engine, ids: Sequence[UUID] | None, tenant: str | None = None) -> list[UUID]:
    """Make these deliveries due now unless delivered, or all dead ones if `ids` is None; of one tenant or of all.

    Returns the deliveries that are tried again.
    """
    with engine.begin() as connection:
        given = {"ids": None if ids is None else list(ids), "tenant": tenant}
        return list(connection.scalars(statement("admin/retry_deliveries"), given))


def secrets(settings: Settings, tenant: str) -> list[str]:
    """The secrets with which a tenant's receivers verify webhooks, the newest first."""
    return [receiver_secret(secret, tenant) for secret in settings.reveal_webhook_secrets()]
