"""One-time sign-in links to the web console: only a hash of each is stored, until the link is used or expires."""

from __future__ import annotations

from hashlib import sha256
from secrets import token_urlsafe
from typing import Final

from sqlalchemy import Engine, Row

from thothy_ai.db.statements import statement

ROLES: Final = ("reader", "editor", "operator")
LINK_SECONDS: Final = 15 * 60


def make_link(engine: Engine, name: str, role: str, tenant: str | None, *, personal: bool = True) -> str:
    """The token of a link that signs in once, within `LINK_SECONDS`, as `name`; `tenant` None: for all tenants.

    A name that is not `personal` can belong to several people.
    """
    token = token_urlsafe(24)
    wanted = {
        "digest": _digest(token), "name": name, "personal": personal, "role": role, "tenant": tenant,
        "seconds": LINK_SECONDS,
    }  # fmt: skip
    with engine.begin() as connection:
        connection.execute(statement("http/make_console_link"), wanted)
    return token


def use_link(engine: Engine, token: str) -> Row[tuple[str, str, str | None, bool]] | None:
    """The name, role and tenant of a link, and whether the name is personal; the link is used up. None if it was used
    before, or is too old.
    """
    with engine.begin() as connection:
        return connection.execute(statement("http/use_console_link"), {"digest": _digest(token)}).one_or_none()


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()
