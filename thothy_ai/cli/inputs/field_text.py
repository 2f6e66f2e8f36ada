"""An artifact's fields as a text for an editor, and back.

    == key_points.0.point
    Bakers let their dough rest for a night.

Leaving out all fields of a list's item removes the item. Values other than text are JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from thothy_ai.errors import InvalidDecisionError
from thothy_ai.producer.decisions import leaves

_FIELD = re.compile(r"^== ?(\S+)[ \t]*$", re.MULTILINE)
_LIKE_A_FIELD = re.compile(r"^(?=\\*==)", re.MULTILINE)
_ESCAPED = re.compile(r"^\\(?=\\*==)", re.MULTILINE)


def field_text(body: Mapping[str, Any], note: str = "") -> str:
    """The fields, one after the other, below a note of lines that begin with `#`."""
    parts = [f"# {line}".rstrip() for line in note.splitlines()]
    for part, value in leaves(body):
        shown = _LIKE_A_FIELD.sub(r"\\", value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        parts.append(f"\n== {part}\n{shown}")
    return "\n".join(parts).lstrip("\n") + "\n"


def fields_of(text: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The artifact that an edited text stands for; `body` is the artifact before.

    Raises `InvalidDecisionError`.
    """
    before = dict(leaves(body))
    head, *rest = _FIELD.split(text.replace("\r\n", "\n"))
    if stray := next((line for line in head.splitlines() if line.strip() and not line.startswith("#")), None):
        raise InvalidDecisionError("body", f"{stray[:60]!r} stands before the first field, such as: == title")
    if not rest:
        raise InvalidDecisionError("body", "has no field, such as: == title")
    made: dict[str, Any] = {}
    for part, shown in zip(rest[::2], rest[1::2], strict=True):
        value: Any = _ESCAPED.sub("", shown.strip("\n"))
        if not isinstance(before.get(part, ""), str):
            try:
                value = json.loads(value)
            except ValueError:
                raise InvalidDecisionError(part, f"is not JSON: {value[:60]!r}") from None
        *path, last = part.split(".")
        at = made
        for step in path:
            at = at.setdefault(step, {})
            if not isinstance(at, dict):
                raise InvalidDecisionError(part, "is below a field that has a text")
        if last in at:
            raise InvalidDecisionError(part, "is there twice")
        at[last] = value
    return {name: _with_lists(value, body.get(name)) for name, value in made.items()}


def _with_lists(value: Any, before: Any) -> Any:
    """The value with lists restored as in `before`, their items in the order of their numbers."""
    if not isinstance(value, dict):
        return value
    if isinstance(before, list) and all(name.isdecimal() for name in value):
        return [_with_lists(value[name], before[0] if before else None) for name in sorted(value, key=int)]
    known = before if isinstance(before, Mapping) else {}
    return {name: _with_lists(each, known.get(name)) for name, each in value.items()}
