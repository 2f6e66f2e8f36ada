"""Values as JSON text, as commands and exports write it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

# What a terminal obeys, what overrides the direction of text, and what cannot be encoded.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def json_text(value: object, indent: int | None = None) -> str:
    """Encode as JSON, with times in UTC. All control characters are escaped, also those that JSON allows."""

    def default(value: object) -> str:
        return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)

    text = json.dumps(value, default=default, ensure_ascii=False, indent=indent)
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
