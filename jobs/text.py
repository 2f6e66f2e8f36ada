"""Which strings may enter and leave: what Postgres, JSON and a tokenizer can all carry."""

from __future__ import annotations

from pydantic_core import PydanticCustomError

MAX_CHARACTERS = 400_000


def check_carriable(value: str) -> None:
    """Refuse what no store can carry: NUL and lone surrogates (`PydanticCustomError`, so the field gets named)."""
    if "\x00" in value:
        raise PydanticCustomError("text_nul", "contains a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        code_point = f"U+{ord(value[error.start]):04X}"
        raise PydanticCustomError(
            "text_surrogate", "contains a lone surrogate ({code_point})", {"code_point": code_point}
        ) from None


def check_written(value: str) -> None:
    """Refuse text that says nothing, and text too long for any model (`PydanticCustomError`)."""
    if not value.strip():
        raise PydanticCustomError("text_empty", "is empty")
    if len(value) > MAX_CHARACTERS:
        context = {"limit": f"{MAX_CHARACTERS:,}", "length": f"{len(value):,}"}
        raise PydanticCustomError("text_too_long", "has {length} characters; the limit is {limit}", context)


def strings_in(value: object) -> list[str]:
    """Every string inside a value as it comes from JSON or from a caller, keys included."""
    match value:
        case str():
            return [value]
        case dict():
            return [text for pair in value.items() for part in pair for text in strings_in(part)]
        case list() | tuple() | set() | frozenset():
            return [text for item in value for text in strings_in(item)]
        case _:
            return []
