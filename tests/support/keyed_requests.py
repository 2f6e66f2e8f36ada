"""Requests to the HTTP door with keys, and keys."""

from __future__ import annotations

from typing import Any

import httpx
from sqlalchemy import Engine

from tests.support.patience import PATIENCE
from thothy_ai.db.api_keys import UNLIMITED, KeyLimits, create_key

HELLO = {"model": "answering", "messages": [{"role": "user", "content": "hello"}]}
ROUTE = "/v1/chat/completions"


def made(
    engine: Engine, tenant: str = "acme", scopes: tuple[str, ...] = ("chat",), *, limits: KeyLimits = UNLIMITED
) -> str:
    """A new key."""
    return create_key(engine, tenant, scopes, limits, name="", expires_at=None)


def ask(address: str, key: str | None = None, **headers: str) -> httpx.Response:
    """A request for text."""
    given: dict[str, Any] = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.post(f"{address}{ROUTE}", json=HELLO, headers={**given, **headers}, timeout=PATIENCE)


def code(answer: httpx.Response) -> tuple[int, str]:
    """The status and the code of a refusal."""
    assert answer.headers["x-request-id"].startswith("req_")
    return answer.status_code, answer.json()["error"]["code"]
