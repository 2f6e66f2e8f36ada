"""Server-sent events, as OpenAI's streams have them."""

from __future__ import annotations

from typing import Final

import msgspec

DONE = b"data: [DONE]\n\n"
PING = b": waiting\n\n"  # a comment, which clients skip


encoded: Final = msgspec.json.encode  # a tenth of the time of `json`, for each token; no integers beyond 64 bits


def event(value: object) -> bytes:
    """One event with a JSON value."""
    return b"data: " + encoded(value) + b"\n\n"
