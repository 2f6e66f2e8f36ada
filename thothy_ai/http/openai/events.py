"""Server-sent events, as OpenAI's streams have them."""

from __future__ import annotations

import json

DONE = b"data: [DONE]\n\n"
PING = b": waiting\n\n"  # a comment, which clients skip


def event(value: object) -> bytes:
    """One event with a JSON value."""
    return b"data: " + encoded(value) + b"\n\n"


def encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
