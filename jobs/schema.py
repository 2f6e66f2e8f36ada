"""From an artifact's class to the JSON schema that a grammar is made of, and the shapes of text that artifacts have.

A small model left free inside a string may run into endless emoji or never close it, so every string needs a pattern
with an end, and every array a length: `grammar_schema` refuses an artifact without them.

The bound stands inside the pattern, as `[class]{20,200}`, and not beside it as `maxLength`: llguidance then recognizes
the plain runs in its tokenizer slices, and a mask takes 40 us instead of 800.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic import Field
from pydantic.fields import FieldInfo

if TYPE_CHECKING:
    from pydantic import BaseModel

# What running text in any script may hold, given by what it may not: control characters, the two that JSON escapes,
# markup, zero-width characters, arrows, symbols and dingbats, private use, and all beyond the BMP (emoji).
NOT_TEXT = (
    r'\x00-\x1f"\\#*<=>@\[\]^_`{|}~\x7f-\x9f\u200b-\u200f\u2028-\u202f\u2060-\u209f'
    r"\u2190-\u2bff\ue000-\uf8ff\ufe00-\ufe0f\ufff0-\uffff\U00010000-\U0010ffff"
)
TEXT = f"[^{NOT_TEXT}]"
# A sentence begins with a capital, a digit, an opening mark, or beyond Latin-1. Ranges, not \p{Lu}: Unicode classes
# make a grammar ten times slower to compile. A full stop inside it is a decimal point or ends a quotation: were it
# free, a model that wants one more sentence than it may have would go on behind the last.
_START = r"[A-Z0-9À-ÖØ-Þ“„«‘¿¡\u0100-\u1fff\u3000-\ud7ff]"
_INSIDE = f"(?:[^{NOT_TEXT}.!?…。！？]|[0-9][.][0-9]|[!?][”“»],? [a-zß-ÿ])"
_END = r"[.!?。！？][”“»」]?"
_TITLE_END = rf"[^{NOT_TEXT} ,;:(–—-]"
SHORTEST_SENTENCE = 8
_UNBOUNDED = re.compile(r"[*+]|\{\d+,\}")
_CLASS_OR_ESCAPE = re.compile(r"\[(?:\\.|[^\]\\])*\]|\\.")
_DROPPED = frozenset({"title", "description", "default", "examples"})


class SchemaError(Exception):
    """An artifact whose schema leaves the model free to run on."""


def prose_pattern(shortest: int, longest: int) -> str:
    """Pattern of any text on one line, in characters."""
    return f"^{TEXT}{{{shortest},{longest}}}$"


def prose(shortest: int, longest: int) -> FieldInfo:
    """Field of any text on one line, in characters; use as `Annotated[str, prose(1, 80)]`."""
    return _field(shortest, longest, f"^{TEXT}+$", prose_pattern(shortest, longest))


def title(shortest: int, longest: int) -> FieldInfo:
    """Field of a heading, in characters: begins like a sentence and does not end in a comma."""
    counted = f"^{_START}{TEXT}{{{shortest - 2},{longest - 2}}}{_TITLE_END}$"
    return _field(shortest, longest, f"^{_START}{TEXT}+{_TITLE_END}$", counted)


def sentences(fewest: int, most: int, longest: int) -> FieldInfo:
    """Field of `fewest` to `most` whole sentences of up to `longest` characters each.

    A small model seldom finds an end by itself; where the grammar ends a text is so the end of a sentence.
    """
    free = _sentences(fewest, most, "+")
    counted = _sentences(fewest, most, f"{{{SHORTEST_SENTENCE - 2},{longest - 3}}}")
    return _field(fewest * SHORTEST_SENTENCE, most * (longest + 1), free, counted)


def _sentences(fewest: int, most: int, length: str) -> str:
    sentence = f"{_START}{_INSIDE}{length}{_END}"
    return f"^{sentence}(?: {sentence}){{{fewest - 1},{most - 1}}}$"


def _field(shortest: int, longest: int, free: str, counted: str) -> FieldInfo:
    """Field whose length pydantic counts beside the pattern (`free`), and the grammar inside it (`counted`)."""

    def count_in_pattern(schema: dict[str, Any]) -> None:
        del schema["minLength"], schema["maxLength"]
        schema["pattern"] = counted

    field: FieldInfo = Field(min_length=shortest, max_length=longest, pattern=free, json_schema_extra=count_in_pattern)
    return field


def grammar_schema(artifact: type[BaseModel]) -> dict[str, Any]:
    """Return the artifact's JSON schema: references inlined, keys in field order and all required, nothing unbounded.

    Raises `SchemaError` naming the first field that is not bounded.
    """
    schema = artifact.model_json_schema()
    plain: dict[str, Any] = _plain(schema, schema.get("$defs", {}))
    _check_bounded(plain, artifact.__name__)
    return plain


def _plain(node: object, definitions: dict[str, Any]) -> Any:  # noqa: ANN401  JSON in, JSON out
    if isinstance(node, list):
        return [_plain(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _plain(definitions[node["$ref"].removeprefix("#/$defs/")], definitions)
    if node.get("type") == "object" and "properties" in node:
        return _object(node["properties"], definitions)
    return {key: _plain(value, definitions) for key, value in node.items() if key not in _DROPPED}


def _object(properties: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: _plain(value, definitions) for name, value in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }


def _check_bounded(node: object, path: str) -> None:
    if isinstance(node, list):
        for item in node:
            _check_bounded(item, path)
        return
    if not isinstance(node, dict):
        return
    _check_node(node, path)
    for key, value in node.items():
        _check_bounded(value, path if key in {"properties", "items"} else f"{path}.{key}")


def _check_node(node: dict[str, Any], path: str) -> None:
    match node.get("type"):
        case "string" if not node.keys() & {"enum", "const"} and not _is_bounded(node):
            raise SchemaError(f"{path}: give this string a pattern that ends, for example by prose(20, 200)")
        case "array" if "maxItems" not in node:
            raise SchemaError(f"{path}: give this array a max_length")
        case "object" if "properties" not in node:
            raise SchemaError(f"{path}: an object needs fixed keys: declare a model for it")
        case _:
            pass


def _is_bounded(string: dict[str, Any]) -> bool:
    """Whether a string has a pattern, and an end: by `maxLength`, or because nothing in the pattern repeats freely."""
    bare = _CLASS_OR_ESCAPE.sub("", string.get("pattern", "*"))
    return "pattern" in string and ("maxLength" in string or not _UNBOUNDED.search(bare))
