"""Requests to the OpenAI-compatible routes, and what their tests read in the answers."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.support.answering_backend import AnsweringBackend
from tests.support.patience import PATIENCE
from thothy_ai.engine.api import GenerationRequest, TokenLogprob

HELLO = [{"role": "user", "content": "hello"}]
PIECES = ["Schö", "ne", " Grüße 🙂"]
TEXT = "".join(PIECES)
LIKELY = TokenLogprob(-0.5, (0, 1), (-0.5, -1e30))


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "answering", "messages": HELLO, **fields}


def post(address: str, path: str, body: Any, **options: Any) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"} | options.pop("headers", {})
    return httpx.post(f"{address}/v1/{path}", content=content, headers=headers, timeout=PATIENCE, **options)


def asked(backend: AnsweringBackend) -> GenerationRequest:
    return backend.requests[-1]


def events(text: str) -> list[dict[str, Any]]:
    """The values of a stream that ends as it should."""
    lines = [line for line in text.split("\n\n") if line and not line.startswith(":")]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]
