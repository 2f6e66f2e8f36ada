"""Short job ids: a whole id, or a unique beginning or end of one."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Engine

from thothy_ai.db.statements import statement
from thothy_ai.errors import AmbiguousIdError, UnknownJobError

ID_CHARS = 36
LISTED = 5  # candidates named by an error


def resolve(engine: Engine, ref: str) -> UUID:
    """The id that `ref` is, or that begins or ends with it.

    A whole id need not exist. Raises `UnknownJobError` and `AmbiguousIdError`.
    """
    if len(ref.replace("-", "")) == ID_CHARS - 4:
        return UUID(ref)
    with engine.connect() as connection:
        ids = connection.scalars(statement("admin/ids_like"), _bounds(ref) | {"ref": ref, "limit": LISTED + 1}).all()
    if not ids:
        raise UnknownJobError(ref)
    if len(ids) > 1:
        raise AmbiguousIdError(ref, ids[:LISTED], more=len(ids) > LISTED)
    return UUID(str(ids[0]))


def _bounds(ref: str) -> dict[str, UUID]:
    """The least and the greatest id that begin with `ref`."""
    digits = ref.replace("-", "")
    return {"least": UUID(digits.ljust(32, "0")), "greatest": UUID(digits.ljust(32, "f"))}
