"""Deliveries of webhooks: which there are, and trying dead ones again."""

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
    """How many deliveries there are in each state, of one tenant or of all."""
    with engine.connect() as connection:
        rows = connection.execute(statement("admin/count_deliveries"), {"tenant": tenant})
        found = {row.state: row.deliveries for row in rows}
    return {state: found.get(state, 0) for state in STATES}


def deliveries(engine: Engine, *, state: str | None, tenant: str | None, limit: int) -> list[dict[str, Any]]:
    """Deliveries, newest first."""
    wanted = {"state": state, "tenant": tenant, "limit": limit}
    with engine.connect() as connection:
        return [dict(row) for row in connection.execute(statement("admin/list_deliveries"), wanted).mappings()]


def retry(engine: Engine, ids: Sequence[UUID] | None) -> int:
    """Make these deliveries due now, or all dead ones if `ids` is None; those delivered stay so. How many are due."""
    with engine.begin() as connection:
        given = {"ids": None if ids is None else list(ids)}
        return len(connection.execute(statement("admin/retry_deliveries"), given).all())


def secrets(settings: Settings, tenant: str) -> list[str]:
    """What the receivers of a tenant verify with, the newest first; none if the service has no secret."""
    return [receiver_secret(secret, tenant) for secret in settings.reveal_webhook_secrets()]
