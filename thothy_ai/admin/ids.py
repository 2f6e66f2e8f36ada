"""Short job ids: a whole id, or a unique beginning or end of one."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Engine

from thothy_ai.db.statements import statement
from thothy_ai.errors import AmbiguousIdError, UnknownJobError

DIGITS = 32  # of a whole id
LISTED = 5  # candidates named by an error


@dataclass(frozen=True, slots=True)
class RecentJob:
    """A job that a shell may complete the id of."""

    id: UUID
    kind: str
    state: str


def resolve(engine: Engine, ref: str) -> UUID:
    """The id that `ref` is, or that begins or ends with it: hexadecimal digits in lower case, and hyphens.

    A whole id need not exist. Raises `UnknownJobError` and `AmbiguousIdError`.
    """
    digits = ref.replace("-", "")
    if len(digits) == DIGITS:
        return UUID(digits)
    wanted = {
        "digits": digits,
        "least": UUID(digits.ljust(DIGITS, "0")),
        "greatest": UUID(digits.ljust(DIGITS, "f")),
        "limit": LISTED + 1,
    }
    with engine.connect() as connection:
        ids = connection.scalars(statement("admin/ids_like"), wanted).all()
    if not ids:
        raise UnknownJobError(ref)
    if len(ids) > 1:
        raise AmbiguousIdError(ref, sorted(ids)[:LISTED], more=len(ids) > LISTED)
    return UUID(str(ids[0]))


def recent(engine: Engine, limit: int) -> list[RecentJob]:
    """The newest jobs."""
    with engine.connect() as connection:
        return [RecentJob(*row) for row in connection.execute(statement("admin/recent_ids"), {"limit": limit})]
