"""JSON schemas for grammars, derived from artifact classes, and the text fields that artifacts use.

Inside an unconstrained string, a small model may emit endless emoji or never close it. So every string needs a bounded
pattern, and every array a maximum length; `grammar_schema` rejects an artifact without them.

The bound is part of the pattern, as in `[class]{20,200}`, rather than a separate `maxLength`: llguidance then
recognizes plain runs in its tokenizer slices, and a mask takes 40 us instead of 800.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field
from pydantic.fields import FieldInfo

if TYPE_CHECKING:
    from pydantic import BaseModel

# Characters that text in any script may not contain: control characters, the backslash, markup, zero-width characters
# (except the joiners that Persian and Indic scripts need), marks of direction, arrows, symbols and dingbats (except
# − ≈ ≤ ≥), private use, and emoji.
NOT_TEXT = (
    r"\x00-\x1f\\*<=>\[\]^_`{|}~\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u209f"
    r"\u2190-\u2211\u2213-\u2247\u2249-\u2263\u2266-\u2bff\ue000-\uf8ff\ufe00-\ufe0f\ufff0-\uffff"
    r"\U00010000-\U0001ffff\U00040000-\U0010ffff"
)
TEXT = f"[^{NOT_TEXT}]"
# Characters of a post: emoji and the characters of links and hashtags, but no control characters or tag marks.
_POST = (
    r"[^\x00-\x1f\\<>`{|}\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ue000-\uf8ff\ufff0-\uffff"
    r"\U000e0000-\U0010ffff]"
)
# A sentence ends with a mark of any script. Marks inside it are decimal points, abbreviations such as U.S. and e.g.,
# and those of a quotation before a comma or a small letter.
_PHRASE = f"[^{NOT_TEXT}.!?…。！？]"
_CLOSING = '[”“»’)"]'
_INSIDE = (
    f"(?:{_PHRASE}|[.][0-9A-Za-z]|[.][A-Za-z][.] [a-z]"
    f"|[.!?…]{{1,3}}{_CLOSING}{{1,2}}(?:[,;:]| [a-zß-ÿ])|(?:…|[.]{{3}})[ ,]?[a-zß-ÿ])"
)
_BEGIN = f"…?[^{NOT_TEXT}.,;:)!?…。！？ ]"
_MARK = f"[.!?…]{{1,3}}{_CLOSING}{{0,2}}"
_FULL_MARK = "[。！？]{1,2}[」』”）]{0,2}"
_END = f"(?:{_MARK}|{_FULL_MARK}|[।॥؟۔։።။]{_CLOSING}{{0,2}})"
_BETWEEN = f"(?:{_MARK} |{_FULL_MARK} ?|[।॥؟۔։።။]{_CLOSING}{{0,2}} )"
_TITLE_START = f"[^{NOT_TEXT} .,;:!)–—-]"
_QUOTABLE = r"[^\x00-\x1f\x7f]"
_LINE = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]"
MIN_SENTENCE_CHARS = 3
_MAX_INSIDE = 7  # characters that one repetition of `_INSIDE` may have
_UNBOUNDED = re.compile(r"[*+]|\{\d+,\}")
_CLASS_OR_ESCAPE = re.compile(r"\[(?:\\.|[^\]\\])*\]|\\.")
_DROPPED = frozenset({"title", "description", "default", "examples"})
_PLAIN = "without markup or emoji"
_REPEATED = re.compile(r"\{\d+,(\d+)\}")
_expected: Final[dict[str, str]] = {}  # what the patterns of the fields below accept, in words
_longest: Final[dict[str, int]] = {}  # the most characters, by pattern of sentences


# For a field that the model does not write, such as the details of a quotation's source.
NOT_WRITTEN: Final[FieldInfo] = Field(json_schema_extra={"readOnly": True})


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


def post_pattern(min_chars: int, max_chars: int) -> str:
    """Pattern of a post on one line, in which emoji and links are text."""
    return f"^{_POST}{{{min_chars},{max_chars}}}$"


def post(min_chars: int, max_chars: int) -> FieldInfo:
    """Field of a post on one line: plain text with emoji, links and hashtags."""
    expected = "must be one line of plain text, without tags; emoji and links are possible"
    return _field(min_chars, max_chars, f"^{_POST}+$", post_pattern(min_chars, max_chars), expected)


def line(min_chars: int, max_chars: int) -> FieldInfo:
    """Field of any text on one line, markup and emoji included, for what a producer wrote."""
    expected = "must be one line of text, without control characters"
    return _field(min_chars, max_chars, f"^{_LINE}+$", f"^{_LINE}{{{min_chars},{max_chars}}}$", expected)


def quotation(min_chars: int, max_chars: int) -> FieldInfo:
    """Field of any text that a source can have on a line. It allows all JSON text, for which masks are cheapest."""
    expected = "must be text without control characters"
    return _field(min_chars, max_chars, f"^{_QUOTABLE}+$", f"^{_QUOTABLE}{{{min_chars},{max_chars}}}$", expected)


def title(min_chars: int, max_chars: int) -> FieldInfo:
    """Field of a heading: begins with neither a space nor a punctuation mark that belongs to what is before it."""
    bounded = f"^{_TITLE_START}{TEXT}{{{min_chars - 1},{max_chars - 1}}}$"
    expected = f"must be a heading: one line, {_PLAIN}, with no comma, colon or dash at its beginning"
    return _field(min_chars, max_chars, f"^{_TITLE_START}{TEXT}*$", bounded, expected)


def sentences(min_count: int, max_count: int, max_chars: int) -> FieldInfo:
    """Field of `min_count` to `max_count` whole sentences of about `max_chars` characters each at most, on one line.

    A small model seldom stops by itself. Under this pattern it must, at the end of a sentence. For a model that stops
    by itself, and for languages without sentence-ending marks (Thai), use `prose`, which also has cheaper masks.
    """
    count = f"{min_count} to {max_count}" if min_count < max_count else str(max_count)
    expected = f"must be {count} whole {'sentence' if max_count == 1 else 'sentences'} on one line, {_PLAIN}"
    bounded = sentences_pattern(min_count, max_count, max_chars)
    longest = max_count * max_chars * _MAX_INSIDE
    return _field(min_count * MIN_SENTENCE_CHARS, longest, _sentences(min_count, max_count, "+"), bounded, expected)


def sentences_pattern(min_count: int, max_count: int, max_chars: int) -> str:
    """Pattern of `min_count` to `max_count` sentences."""
    pattern = _sentences(min_count, max_count, f"{{{MIN_SENTENCE_CHARS - 2},{max_chars - 3}}}")
    _longest[pattern] = max_count * (max_chars + 1)
    return pattern


def _sentences(min_count: int, max_count: int, length: str) -> str:
    sentence = f"{_BEGIN}{_INSIDE}{length}"
    return f"^{sentence}(?:{_BETWEEN}{sentence}){{{min_count - 1},{max_count - 1}}}{_END}$"


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
        written = {name: value for name, value in node["properties"].items() if not value.get("readOnly")}
        return object_schema({name: _plain(value, definitions) for name, value in written.items()})
    return {key: _plain(value, definitions) for key, value in node.items() if key not in _DROPPED}


def has_types(value: object, schema: Mapping[str, Any]) -> bool:
    """Whether a JSON value and all values in it have the types that a schema without references names. Missing values
    and wrong lengths do not count.
    """
    match schema.get("type"):
        case "object":
            known = schema.get("properties", {})
            return isinstance(value, dict) and all(
                has_types(value[name], known[name]) for name in known if name in value
            )
        case "array":
            return isinstance(value, list) and all(has_types(item, schema.get("items", {})) for item in value)
        case "string":
            return isinstance(value, str)
        case "integer" | "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
    given = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    return not given or any(type(value) is type(one) for one in given)


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Schema of an object with exactly these keys, in this order."""
    return {
        "type": "object",
        "properties": dict(properties),
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
    match node.get("type"):
        case "string" if not node.keys() & {"enum", "const"}:
            bare = _CLASS_OR_ESCAPE.sub("", node.get("pattern", "*"))
            if "pattern" not in node or ("maxLength" not in node and _UNBOUNDED.search(bare)):
                raise SchemaError(f"{path}: the string needs a bounded pattern, for example prose(20, 200)")
        case "array" if "maxItems" not in node:
            raise SchemaError(f"{path}: the array needs a max_length")
        case "object" if "properties" not in node:
            raise SchemaError(f"{path}: the object needs fixed keys; declare a pydantic model for it")
        case _:
            pass
    for key, value in node.items():
        _check_bounded(value, path if key in {"properties", "items"} else f"{path}.{key}")


def max_characters(schema: Mapping[str, Any]) -> int:
    """The maximum length in characters of a JSON text that matches a grammar schema; sentences count with their nominal
    length.
    """
    if "enum" in schema:
        return max(len(str(value)) for value in schema["enum"]) + 2
    match schema.get("type"):
        case "object":
            return 2 + sum(len(name) + 4 + max_characters(part) for name, part in schema["properties"].items())
        case "array":
            return 2 + int(schema["maxItems"]) * (1 + max_characters(schema["items"]))
        case "string":
            if bound := schema.get("maxLength") or _longest.get(schema["pattern"]):
                return 2 + int(bound)
            return 4 + sum(map(int, _REPEATED.findall(_CLASS_OR_ESCAPE.sub("x", schema["pattern"]))))
        case _:
            return len(str(schema.get("const", ""))) + 12
