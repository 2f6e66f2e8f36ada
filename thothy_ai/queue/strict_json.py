"""Reads JSON that means one thing: an object has each key once, and numbers are numbers."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NoReturn


def read(data: bytes) -> Any:
    """The value of a JSON text. Raises `ValueError`, which says what is wrong with it."""
    try:
        return json.loads(data.decode(), object_pairs_hook=_once_each, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _once_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice!r} occurs twice in an object")
    return found


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
