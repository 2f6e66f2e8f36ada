"""The callers of requests, and what they may do.

The application finds each request's caller and leaves it in the ASGI scope, where `caller_of` finds it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from starlette.types import Scope

from thothy_ai.db.api_keys import SCOPES, UNLIMITED, KeyLimits
from thothy_ai.http.errors import ApiError

HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:\s]+))(?::\d*)?")
READING = {"GET", "HEAD", "OPTIONS"}
Right = Literal["chat", "jobs", "read", "review", "admin"]


@dataclass(frozen=True, slots=True)
class Caller:
    """A tenant's program. `key` is the id of its API key; None without keys."""

    tenant: str
    key: str | None
    scopes: frozenset[str]
    limits: KeyLimits = UNLIMITED


class Access(Protocol):
    """Tells who sends a request."""

    async def start(self) -> None:
        """Start keeping the known callers up to date."""

    async def close(self) -> None:
        """Stop updating the known callers, for good."""

    async def caller(self, scope: Scope) -> Caller:
        """The caller of a request. Raises `ApiError` 401 for an invalid key."""

    def while_valid(self, caller: Caller) -> AbstractAsyncContextManager[None]:
        """Ends its block with `ApiError` 401 once the caller's key is no longer valid."""


class Everybody:
    """Implements `Access` without keys: anyone who reaches the address may do everything, for one tenant. With `hosts`,
    a request must be addressed to this machine, an IP address or one of these names. Otherwise a web page could point a
    name of its own to this address and send requests from its visitors' browsers. Under any name, a page of another
    origin may only read, since browsers hide the answer from it; they send its forms and empty bodies without asking
    first.
    """

    def __init__(self, tenant: str, hosts: Collection[str] | None = None) -> None:
        self._caller = Caller(tenant, None, frozenset(SCOPES))
        self._hosts = None if hosts is None else frozenset(map(str.lower, hosts))

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def caller(self, scope: Scope) -> Caller:
        if self._hosts is not None and not self._is_ours(header(scope, b"host")):
            says = "the Host header names another machine; THOTHY_HTTP_HOSTS allows names, and a key makes up for it"
            raise ApiError(403, says, code="host_not_allowed")
        if scope["method"] not in READING and is_of_another_page(scope):
            says = "a web page of another origin sent the request; with a key it may"
            raise ApiError(403, says, code="origin_not_allowed")
        return self._caller

    @asynccontextmanager
    async def while_valid(self, caller: Caller) -> AsyncIterator[None]:  # noqa: ARG002 - it always is
        yield

    def _is_ours(self, host: str | None) -> bool:
        """Whether a Host header is harmless. Browsers always send one."""
        if host is None:
            return True
        found = HOST.fullmatch(host.lower())
        name = (found[1] or found[2].rstrip(".")) if found else ""
        if name == "localhost" or name.endswith(".localhost") or name in (self._hosts or ()):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def is_of_another_page(scope: Scope) -> bool:
    """Whether a browser sent the request for a page of another origin. Old browsers only send the origin."""
    if (site := header(scope, b"sec-fetch-site")) is not None:
        return site not in {"same-origin", "none"}
    origin = header(scope, b"origin")
    return origin is not None and origin.partition("://")[2].lower() != (header(scope, b"host") or "").lower()


def caller_of(scope: Scope, right: Right) -> Caller:
    """The caller of this request; `ApiError` 403 if the key lacks this scope. `admin` includes the others. To a caller,
    other tenants' things do not exist: routes answer 404.
    """
    caller: Caller = scope["caller"]
    if caller.scopes.isdisjoint({right, "admin"}):
        raise ApiError(403, f"the key does not have the scope {right!r}", code="insufficient_permissions")
    return caller


def header(scope: Scope, name: bytes) -> str | None:
    """The value of a header; `ApiError` if the request has it twice."""
    values = [value for key, value in scope["headers"] if key == name]
    if len(values) > 1:
        raise ApiError(400, f"the header {name.decode()} is there {len(values)} times", code="invalid_header")
    return values[0].decode("latin-1") if values else None
