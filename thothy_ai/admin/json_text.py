"""Formats values as JSON text for commands and exports."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

# Characters that a terminal obeys, that override the direction of text, or that cannot be encoded.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def json_text(value: object, indent: int | None = None) -> str:
    """Encode as JSON, with times in UTC. All control characters are escaped, even those that JSON allows."""

    def default(value: object) -> str:
        return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)

    text = json.dumps(value, default=default, ensure_ascii=False, indent=indent)
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
