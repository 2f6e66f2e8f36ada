"""The console's viewers: sign-in by a key or a one-time link, and sessions in a signed cookie.

A session names its viewer. It ends after half a day, or within seconds after the viewer signs out, an operator ends it,
or its key is revoked. Forms send back the session's own token, so that no other site's page can act for a viewer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Any, Final
from uuid import UUID

from itsdangerous import BadData, URLSafeTimedSerializer
from sqlalchemy import Engine, Row
from uuid_utils.compat import uuid7

from thothy_ai.db.api_keys import ApiKey
from thothy_ai.db.console_links import use_link
from thothy_ai.db.statements import statement
from thothy_ai.http.errors import ApiError

COOKIE: Final = "thothy_console"
SESSION_SECONDS: Final = 12 * 3600


class ViewerRole(IntEnum):
    """What a viewer may do. Each role includes the ones before it."""

    READER = 0  # look
    EDITOR = 1  # decide on artifacts
    OPERATOR = 2  # change jobs, engines and keys


@dataclass(frozen=True, slots=True)
class Viewer:
    """A signed-in person. `tenant` is None for viewers of all tenants. `key` is the id of the API key that signed in,
    if any.
    """

    name: str
    role: ViewerRole
    tenant: str | None
    key: str | None
    csrf: str
    session: UUID
    personal: bool = True  # whether a person gave the name; otherwise `thothy console` took the account's

    @property
    def signature(self) -> str:
        """The author of a change: the name, and the key that signed in, since names alone do not identify anyone."""
        return f"{self.name} ({self.key})" if self.key and self.key != self.name else self.name

    @property
    def identity(self) -> str:
        """The owner of drafts that a session can continue: its key or name, or only itself if an account gave
        the name.
        """
        return self.key or (f"{self.tenant or '*'} {self.name}" if self.personal else str(self.session))

    def sees(self, tenant: str) -> bool:
        return self.tenant in {None, tenant}


def viewer_of_key(key: ApiKey) -> Viewer | None:
    """The viewer that a key signs in; None if the key may not read."""
    scopes = key.scopes
    if scopes.isdisjoint({"read", "review", "admin"}):
        return None
    role = ViewerRole.OPERATOR if "admin" in scopes else ViewerRole.EDITOR if "review" in scopes else ViewerRole.READER
    name = "".join(char for char in key.name if char.isprintable()).strip() or key.id
    return Viewer(name, role, key.tenant, key.id, token_urlsafe(16), uuid7())


class Sessions:
    """Signs sessions, and records them so that they can be ended. All servers of an installation share the secret, so
    each reads the others' cookies.
    """

    def __init__(self, database: Engine) -> None:
        self._database = database
        self._signer: URLSafeTimedSerializer | None = None

    def begin(self, viewer: Viewer) -> str:
        """Record a session, and return the value of its cookie."""
        session = {
            "id": viewer.session, "name": viewer.name, "role": viewer.role.name.lower(), "tenant": viewer.tenant,
            "key_id": viewer.key,
        }  # fmt: skip
        with self._database.begin() as connection:
            connection.execute(statement("http/begin_session"), session)
        values = [
            viewer.name,
            int(viewer.role),
            viewer.tenant,
            viewer.key,
            viewer.csrf,
            viewer.session.hex,
            viewer.personal,
        ]
        return str(self._serializer().dumps(values))

    def viewer(self, cookie: str) -> Viewer | None:
        """The viewer of a session; None for a foreign or ended session."""
        try:
            name, role, tenant, key, csrf, session, personal = self._serializer().loads(cookie, max_age=SESSION_SECONDS)
        except (BadData, ValueError):
            return None
        return Viewer(name, ViewerRole(role), tenant, key, csrf, UUID(session), personal)

    def enter(self, token: str) -> Viewer | None:
        """The viewer of a one-time link; None if it was used or has expired."""
        row = use_link(self._database, token)
        if row is None:
            return None
        role = ViewerRole[row.role.upper()]
        return Viewer(row.name, role, row.tenant, None, token_urlsafe(16), uuid7(), row.personal)

    def open(self, tenant: str | None, limit: int) -> list[Row[Any]]:
        """The sessions of this tenant; None: of all tenants."""
        wanted = {"seconds": SESSION_SECONDS, "tenant": tenant, "limit": limit}
        with self._database.connect() as connection:
            return list(connection.execute(statement("http/open_sessions"), wanted))

    def end(self, *, session: UUID | None = None, key: str | None = None, tenant: str | None = None) -> list[str]:
        """End a session, or all sessions of a key. Returns the names of the signed-out viewers."""
        wanted = {"id": session, "key_id": key, "tenant": tenant}
        with self._database.begin() as connection:
            return [row.name for row in connection.execute(statement("http/end_sessions"), wanted)]

    def _serializer(self) -> URLSafeTimedSerializer:
        if self._signer is None:
            with self._database.begin() as connection:
                secret = connection.scalar(statement("http/console_secret"), {"secret": token_urlsafe(32)})
            self._signer = URLSafeTimedSerializer(secret, salt="console session")
        return self._signer


def check_csrf(viewer: Viewer, given: object) -> None:
    """ApiError 403 unless a form was made for this session."""
    if not isinstance(given, str) or not compare_digest(viewer.csrf.encode(), given.encode()):
        raise ApiError(403, "the form is of another session: load the page again", code="csrf")
