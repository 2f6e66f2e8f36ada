"""Aliases of models: names that jobs may ask for instead of a model's, which operators point at another model.

An alias is resolved when a job is dispatched: jobs that wait follow it at once, and those that were dispatched run on.
"""

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
    """An alias and its model. `engines`: how many engines serve that model."""

    alias: str
    model_name: str
    changed_at: datetime
    engines: int


def list_aliases(engine: Engine) -> list[AliasStatus]:
    """All aliases, by name."""
    with engine.connect() as connection:
        return [AliasStatus(*row) for row in connection.execute(statement("admin/model_aliases"))]


def set_alias(engine: Engine, alias: str, model_name: str) -> str | None:
    """Point an alias at a model; returns the model that it was for before.

    Raises `InvalidJobError` for names that cannot be one, and for an alias of an alias.
    """
    check_model_name("alias", alias)
    check_model_name("model", model_name)
    if alias == model_name:
        raise InvalidJobError("alias", f"{alias} is the model's own name")
    with engine.begin() as connection:
        row = connection.execute(statement("admin/set_alias"), {"alias": alias, "model_name": model_name}).one()
        if row.chained is not None:
            raise InvalidJobError("alias", _chain(row.chained, alias))
        connection.execute(WAKE_DISPATCHER)
    return str(row.before) if row.before is not None else None


def _chain(chained: str, alias: str) -> str:
    if chained == alias:
        return f"another alias stands for {alias}: an alias names a model"
    return f"{chained} is an alias itself: an alias names a model"


def remove_alias(engine: Engine, alias: str) -> bool:
    """Remove an alias; whether there was one. Queued jobs that name it wait until there is one again."""
    with engine.begin() as connection:
        return connection.execute(statement("admin/remove_alias"), {"alias": alias}).rowcount == 1
