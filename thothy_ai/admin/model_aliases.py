"""Aliases of models, resolved at dispatch. A change therefore affects waiting jobs at once, but no running job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine

from thothy_ai.db.statements import statement
from thothy_ai.errors import InvalidJobError
from thothy_ai.producer.drafts import check_model_name
from thothy_ai.queue.control import WAKE_DISPATCHER


@dataclass(frozen=True, slots=True)
class AliasStatus:
    alias: str
    model_name: str
    changed_at: datetime
    engines: int  # serving the model


def list_aliases(engine: Engine) -> list[AliasStatus]:
    with engine.connect() as connection:
        return [AliasStatus(*row) for row in connection.execute(statement("admin/model_aliases"))]


def set_alias(engine: Engine, alias: str, model_name: str) -> str | None:
    """Point an alias at a model; returns the model that it stood for before, None if it is new.

    Raises `InvalidJobError` for invalid names, and for an alias of an alias.
    """
    check_model_name("alias", alias)
    check_model_name("model", model_name)
    if alias == model_name:
        raise InvalidJobError("alias", f"{alias} is the model's own name")
    with engine.begin() as connection:
        row = connection.execute(statement("admin/set_alias"), {"alias": alias, "model_name": model_name}).one()
        if row.chained is not None:
            chain = f"{row.chained} is an alias itself"
            if row.chained == alias:
                chain = f"another alias stands for {alias}"
            raise InvalidJobError("alias", f"{chain}: an alias names a model")
        connection.execute(WAKE_DISPATCHER)
    return str(row.before) if row.before is not None else None


def remove_alias(engine: Engine, alias: str) -> bool:
    """Remove an alias; returns whether it existed. Queued jobs that name it wait until it exists again."""
    with engine.begin() as connection:
        return connection.execute(statement("admin/remove_alias"), {"alias": alias}).rowcount == 1
