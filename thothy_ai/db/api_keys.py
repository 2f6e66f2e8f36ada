"""Keys of the HTTP API: `thothy_` and twelve hexadecimal digits, which name the key, then a secret of 256 bits.

Only a hash of the whole key is stored. A plain SHA-256 is right for a random secret of that length: a slower hash only
protects secrets that can be guessed.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from hmac import compare_digest
from secrets import token_hex
from typing import Final

from sqlalchemy import Connection, Engine

from thothy_ai.db.statements import statement
from thothy_ai.errors import PastExpiryError

SCOPES: Final = ("chat", "jobs", "read", "review", "admin")
USUAL: Final = ("chat", "jobs", "read")
KEY: Final = re.compile(r"(thothy_[0-9a-f]{12})_[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Bounds of a key's requests for text; of `requests_per_minute`, all count. None: no bound."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None  # of prompts and outputs
    concurrent_requests: int | None = None
    interactive_seconds_per_day: float | None = None  # in UTC


UNLIMITED: Final = KeyLimits()


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is stored. `id` is its beginning; `ends_in`: seconds until it expires, by Postgres' clock."""

    id: str
    hash: bytes = field(repr=False)
    tenant: str
    name: str
    scopes: frozenset[str]
    limits: KeyLimits
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    ends_in: float | None

    def is_key(self, key: str) -> bool:
        """Whether the text is this key, compared in constant time."""
        return compare_digest(self.hash, sha256(key.encode()).digest())


def id_of(key: str) -> str | None:
    """The id in a key; None for a text that cannot be one."""
    found = KEY.fullmatch(key)
    return found[1] if found else None


def create_key(
    engine: Engine, tenant: str, scopes: Collection[str], limits: KeyLimits, *, name: str, expires_at: datetime | None
) -> str:
    """Create a key and return it: it is not stored, and cannot be shown again.

    Raises `PastExpiryError`: nobody could use the key, and yet from then on every request would need one.
    """
    key_id = f"thothy_{token_hex(6)}"
    key = f"{key_id}_{token_hex(32)}"
    values = {
        "id": key_id,
        "hash": sha256(key.encode()).digest(),
        "tenant": tenant,
        "name": name,
        "scopes": [scope for scope in SCOPES if scope in scopes],
        "requests_per_minute": limits.requests_per_minute,
        "tokens_per_minute": limits.tokens_per_minute,
        "concurrent_requests": limits.concurrent_requests,
        "interactive_seconds_per_day": limits.interactive_seconds_per_day,
        "expires_at": expires_at,
    }
    with engine.begin() as connection:
        if not connection.execute(statement("admin/create_key"), values).rowcount:
            raise PastExpiryError(f"a key cannot expire at {expires_at}, which is in the past")
    return key


def list_keys(connection: Connection) -> list[ApiKey]:
    """All keys, the oldest first; also those that have expired or were revoked."""
    return [
        ApiKey(
            row.id,
            bytes(row.hash),
            row.tenant,
            row.name,
            frozenset(row.scopes),
            KeyLimits(
                row.requests_per_minute, row.tokens_per_minute, row.concurrent_requests, row.interactive_seconds_per_day
            ),
            row.created_at,
            row.expires_at,
            row.revoked_at,
            row.ends_in,
        )
        for row in connection.execute(statement("http/keys"))
    ]


def revoke_key(engine: Engine, key_id: str) -> bool:
    """Revoke a key; False if no key has this id. Revoking twice has no effect."""
    with engine.begin() as connection:
        return connection.execute(statement("admin/revoke_key"), {"id": key_id}).rowcount == 1
