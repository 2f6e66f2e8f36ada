"""JSON schemas for grammars, derived from artifact classes, and the text fields that artifacts use.

Unconstrained inside a string, a small model may emit endless emoji or never close it. Therefore every string needs a
bounded pattern and every array a maximum length; `grammar_schema` rejects an artifact without them.

The bound is part of the pattern, as in `[class]{20,200}`, rather than a separate `maxLength`: llguidance then
recognizes plain runs in its tokenizer slices, and a mask takes 40 us instead of 800.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field
from pydantic.fields import FieldInfo

if TYPE_CHECKING:
    from pydantic import BaseModel

# Characters that prose in any script may not contain: control characters, the two that JSON escapes, markup, zero-width
# characters, arrows, symbols and dingbats, private use, and everything beyond the BMP (emoji).
NOT_TEXT = (
    r'\x00-\x1f"\\#*<=>@\[\]^_`{|}~\x7f-\x9f\u200b-\u200f\u2028-\u202f\u2060-\u209f'
    r"\u2190-\u2bff\ue000-\uf8ff\ufe00-\ufe0f\ufff0-\uffff\U00010000-\U0010ffff"
)
TEXT = f"[^{NOT_TEXT}]"
# A sentence begins with a capital, a digit, an opening mark, or a character beyond Latin-1. Ranges rather than \p{Lu}:
# Unicode classes make a grammar ten times slower to compile. Inside a sentence, a full stop must be a decimal point,
# and an exclamation or question mark must end a quotation: otherwise a model could exceed the maximum count.
_START = r"[A-Z0-9À-ÖØ-Þ“„«‘¿¡\u0100-\u1fff\u3000-\ud7ff]"
_INSIDE = f"(?:[^{NOT_TEXT}.!?…。！？]|[0-9][.][0-9]|[!?][”“»],? [a-zß-ÿ])"
_END = r"[.!?。！？][”“»」]?"
_TITLE_END = rf"[^{NOT_TEXT} ,;:(–—-]"
_LINE = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]"
MIN_SENTENCE_CHARS = 8
_UNBOUNDED = re.compile(r"[*+]|\{\d+,\}")
_CLASS_OR_ESCAPE = re.compile(r"\[(?:\\.|[^\]\\])*\]|\\.")
_DROPPED = frozenset({"title", "description", "default", "examples"})
_PLAIN = "without markup, double quotation marks or emoji"
_expected: Final[dict[str, str]] = {}  # what the patterns of the fields below accept, in words


class SchemaError(Exception):
    """An artifact whose schema does not bound the length of the output."""


def prose_pattern(min_chars: int, max_chars: int) -> str:
    """Pattern of arbitrary text on one line."""
    return f"^{TEXT}{{{min_chars},{max_chars}}}$"


def expected_text(pattern: str) -> str | None:
    """What a field with this pattern accepts, as "must be ..."; None if it is not a pattern of this module's fields."""
    return _expected.get(pattern)


def prose(min_chars: int, max_chars: int) -> FieldInfo:
    """Field of arbitrary text on one line. Use as `Annotated[str, prose(1, 80)]`."""
    expected = f"must be one line of plain text, {_PLAIN}"
    return _field(min_chars, max_chars, f"^{TEXT}+$", prose_pattern(min_chars, max_chars), expected)


def line(min_chars: int, max_chars: int) -> FieldInfo:
    """Field of any text on one line, markup and emoji included, for text that a producer wrote.

    In an artifact, only with a `schema_overrides` that fixes the text: a model would not stop.
    """
    expected = "must be one line of text, without control characters"
    return _field(min_chars, max_chars, f"^{_LINE}+$", f"^{_LINE}{{{min_chars},{max_chars}}}$", expected)


def title(min_chars: int, max_chars: int) -> FieldInfo:
    """Field of a heading: begins like a sentence, and ends in neither a space nor a comma, colon, bracket or dash."""
    bounded = f"^{_START}{TEXT}{{{min_chars - 2},{max_chars - 2}}}{_TITLE_END}$"
    expected = f"must be a heading: one line, begun like a sentence, {_PLAIN}, with no comma, colon or dash at its end"
    return _field(min_chars, max_chars, f"^{_START}{TEXT}+{_TITLE_END}$", bounded, expected)


def sentences(min_count: int, max_count: int, max_chars: int) -> FieldInfo:
    """Field of `min_count` to `max_count` whole sentences of up to `max_chars` characters each.

    A small model seldom stops by itself. Under this pattern, the grammar can stop it only at the end of a sentence.
    """
    unbounded = _sentences(min_count, max_count, "+")
    bounded = _sentences(min_count, max_count, f"{{{MIN_SENTENCE_CHARS - 2},{max_chars - 3}}}")
    count = f"{min_count} to {max_count}" if min_count < max_count else str(max_count)
    expected = f"must be {count} whole {'sentence' if max_count == 1 else 'sentences'} on one line, {_PLAIN}"
    return _field(min_count * MIN_SENTENCE_CHARS, max_count * (max_chars + 1), unbounded, bounded, expected)


def _sentences(min_count: int, max_count: int, length: str) -> str:
    sentence = f"{_START}{_INSIDE}{length}{_END}"
    return f"^{sentence}(?: {sentence}){{{min_count - 1},{max_count - 1}}}$"


def _field(min_chars: int, max_chars: int, unbounded: str, bounded: str, expected: str) -> FieldInfo:
    """Field with two patterns: `unbounded` for pydantic, which checks lengths itself, and `bounded` for the grammar."""
    _expected[unbounded] = expected

    def use_bounded_pattern(schema: dict[str, Any]) -> None:
        del schema["minLength"], schema["maxLength"]
        schema["pattern"] = bounded

    field: FieldInfo = Field(
        min_length=min_chars, max_length=max_chars, pattern=unbounded, json_schema_extra=use_bounded_pattern
    )
    return field


def grammar_schema(artifact: type[BaseModel]) -> dict[str, Any]:
    """Return the artifact's JSON schema: references inlined, all keys required and in field order, all lengths bounded.

    Raises `SchemaError` naming the first unbounded field.
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
            raise SchemaError(f"{path}: the string needs a bounded pattern, for example prose(20, 200)")
        case "array" if "maxItems" not in node:
            raise SchemaError(f"{path}: the array needs a max_length")
        case "object" if "properties" not in node:
            raise SchemaError(f"{path}: the object needs fixed keys; declare a pydantic model for it")
        case _:
            pass


def _is_bounded(string: dict[str, Any]) -> bool:
    """Whether a string has a pattern, and a bound: a `maxLength`, or no unbounded repetition in the pattern."""
    bare = _CLASS_OR_ESCAPE.sub("", string.get("pattern", "*"))
    return "pattern" in string and ("maxLength" in string or not _UNBOUNDED.search(bare))
