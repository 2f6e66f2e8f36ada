"""From an artifact's class to the JSON schema that a grammar is made of.

A small model left free inside a string may run into endless emoji or never close it, so every string needs a pattern
and a length, and every array a length: `grammar_schema` refuses an artifact without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field
from pydantic.fields import FieldInfo

if TYPE_CHECKING:
    from pydantic import BaseModel

# Letters of any script with their marks, digits, and the punctuation of running text in European and CJK typography.
PROSE_PATTERN = r"^[\p{L}\p{M}\p{Nd} .,;:!?'’‘\"“”„«»()%&/€$£+°–—。、！？「」・-]+$"
_DROPPED = frozenset({"title", "description", "default", "examples"})


class SchemaError(Exception):
    """An artifact whose schema leaves the model free to run on."""


def prose(shortest: int, longest: int) -> FieldInfo:
    """Field of one line of running text, in characters; use as `Annotated[str, prose(20, 200)]`."""
    field: FieldInfo = Field(min_length=shortest, max_length=longest, pattern=PROSE_PATTERN)
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
        case "string" if not node.keys() & {"enum", "const"} and not {"pattern", "maxLength"} <= node.keys():
            raise SchemaError(f"{path}: give this string a pattern and a max_length, for example by prose(20, 200)")
        case "array" if "maxItems" not in node:
            raise SchemaError(f"{path}: give this array a max_length")
        case "object" if "properties" not in node:
            raise SchemaError(f"{path}: an object needs fixed keys: declare a model for it")
        case _:
            pass
