"""Who looks at the console: sign-in by a key or a link that works once, and sessions in a signed cookie.

A session names its viewer and ends after half a day, and within seconds once its key is revoked. Each has a token of
its own that forms send back, so that no other site's page can act for a viewer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Final

from itsdangerous import BadData, URLSafeTimedSerializer
from sqlalchemy import Engine

from thothy_ai.db.api_keys import ApiKey
from thothy_ai.db.console_links import use_link
from thothy_ai.db.statements import statement
from thothy_ai.http.errors import ApiError

COOKIE: Final = "thothy_console"
SESSION_SECONDS: Final = 12 * 3600


class ViewerRole(IntEnum):
    """What a viewer may do; each may do what the ones before may."""

    READER = 0  # look
    EDITOR = 1  # decide on artifacts
    OPERATOR = 2  # change jobs, engines and keys


@dataclass(frozen=True, slots=True)
class Viewer:
    """A signed-in person. `tenant` None: of all tenants. `key`: the id of the API key that signed in, if one did."""

    name: str
    role: ViewerRole
    tenant: str | None
    key: str | None
    csrf: str

    @property
    def signature(self) -> str:
        """Who it is, on what they change: the name, and the key that signed in, which names alone do not tell."""
        return f"{self.name} ({self.key})" if self.key and self.key != self.name else self.name

    @property
    def identity(self) -> str:
        """Tells apart viewers of the same name."""
        return self.key or f"{self.tenant or '*'} {self.name}"

    def sees(self, tenant: str) -> bool:
        return self.tenant in {None, tenant}


def viewer_of_key(key: ApiKey) -> Viewer | None:
    """Who signs in with this key; None if it may not read."""
    scopes = key.scopes
    if scopes.isdisjoint({"read", "review", "admin"}):
        return None
    role = ViewerRole.OPERATOR if "admin" in scopes else ViewerRole.EDITOR if "review" in scopes else ViewerRole.READER
    name = "".join(char for char in key.name if char.isprintable()).strip() or key.id
    return Viewer(name, role, key.tenant, key.id, token_urlsafe(16))


class Sessions:
    """Signs sessions and makes links. The secret is the installation's, so that each server reads others' cookies."""

    def __init__(self, database: Engine) -> None:
        self._database = database
        self._signer: URLSafeTimedSerializer | None = None

    def cookie(self, viewer: Viewer) -> str:
        """The value of a session's cookie."""
        return str(self._serializer().dumps([viewer.name, int(viewer.role), viewer.tenant, viewer.key, viewer.csrf]))

    def viewer(self, cookie: str) -> Viewer | None:
        """The viewer of a session; None if it is not ours, or over."""
        try:
            name, role, tenant, key, csrf = self._serializer().loads(cookie, max_age=SESSION_SECONDS)
        except BadData:
            return None
        return Viewer(name, ViewerRole(role), tenant, key, csrf)

    def enter(self, token: str) -> Viewer | None:
        """The viewer of a link, which works once; None if it was used, or is too old."""
        row = use_link(self._database, token)
        return Viewer(row.name, ViewerRole[row.role.upper()], row.tenant, None, token_urlsafe(16)) if row else None

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
