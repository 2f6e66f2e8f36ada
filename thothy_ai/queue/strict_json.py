"""Reads JSON strictly: an object has each key once, and numbers are numbers."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NoReturn

MAX_DEPTH = 100  # of arrays and objects, since code that walks a value may be recursive


def read(data: bytes) -> Any:
    """The value of a JSON text. Raises `ValueError` with the problem."""
    try:
        value = json.loads(data.decode(), object_pairs_hook=_once_each, parse_float=_finite, parse_constant=_no_number)
    except RecursionError:
        raise _too_deep() from None
    may_be_deep = data.count(b"[") + data.count(b"{") > MAX_DEPTH
    level, depth = [value] if may_be_deep else [], 0
    while level := [each for each in level if isinstance(each, (dict, list))]:
        if (depth := depth + 1) > MAX_DEPTH:
            raise _too_deep()
        level = [each for outer in level for each in (outer.values() if isinstance(outer, dict) else outer)]
    return value


def _too_deep() -> ValueError:
    return ValueError(f"it is nested more than {MAX_DEPTH} levels deep")


def _once_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice!r} occurs twice in an object")
    return found


def _finite(number: str) -> float:
    if math.isinf(value := float(number)):
        raise ValueError(f"{number[:20]} is too large for a number")
    return value


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
