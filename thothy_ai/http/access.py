"""Who sends a request, and what they may do.

The application finds each request's caller and leaves it in the ASGI scope, where `caller_of` finds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from starlette.types import Scope

from thothy_ai.http.errors import ApiError

Right = Literal["chat", "jobs", "read", "admin"]
SCOPES: frozenset[str] = frozenset({"chat", "jobs", "read", "admin"})


@dataclass(frozen=True, slots=True)
class Caller:
    """A tenant's program. `key` is the id of its API key; None without keys."""

    tenant: str
    key: str | None
    scopes: frozenset[str]


class Access(Protocol):
    """Tells who sends a request."""

    async def caller(self, scope: Scope) -> Caller:
        """ApiError 401 for a key that is not valid."""


class Everybody:
    """Implements `Access` without keys: whoever reaches the address may do everything, for one tenant."""

    def __init__(self, tenant: str) -> None:
        self._caller = Caller(tenant, None, SCOPES)

    async def caller(self, scope: Scope) -> Caller:  # noqa: ARG002 - there is nothing to look at
        return self._caller


def caller_of(scope: Scope, right: Right) -> Caller:
    """Who sent this request; ApiError 403 if their key does not have this scope. `admin` includes the others.

    Things of another tenant than the caller's do not exist for it: routes answer 404.
    """
    caller: Caller = scope["caller"]
    if caller.scopes.isdisjoint({right, "admin"}):
        raise ApiError(403, f"the key does not have the scope {right!r}", code="insufficient_permissions")
    return caller
