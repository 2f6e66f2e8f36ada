"""Checks of strings in requests and artifacts: Postgres, JSON and the tokenizer must all be able to encode them.

`counted` words a number in the messages about them.
"""

from __future__ import annotations

from pydantic_core import PydanticCustomError

MAX_CHARACTERS = 2**20  # of one text: a megabyte of English, up to four of other scripts


def check_encodable(value: str) -> None:
    """Raise `PydanticCustomError` if the text contains NUL or a lone surrogate."""
    if "\x00" in value:
        raise PydanticCustomError("text_nul", "contains a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        code_point = f"U+{ord(value[error.start]):04X}"
        raise PydanticCustomError(
            "text_surrogate", "contains a lone surrogate ({code_point})", {"code_point": code_point}
        ) from None


def check_content(value: str) -> None:
    """Raise `PydanticCustomError` if the text is blank or longer than `MAX_CHARACTERS`."""
    if not value.strip():
        raise PydanticCustomError("text_empty", "is empty")
    if len(value) > MAX_CHARACTERS:
        context = {"limit": f"{MAX_CHARACTERS:,}", "length": f"{len(value):,}"}
        raise PydanticCustomError("text_too_long", "has {length} characters; the limit is {limit}", context)


def strings_in(value: object) -> list[str]:
    """All strings in a value, nested ones and dictionary keys included."""
    match value:
        case str():
            return [value]
        case dict():
            return [text for pair in value.items() for part in pair for text in strings_in(part)]
        case list() | tuple() | set() | frozenset():
            return [text for item in value for text in strings_in(item)]
        case _:
            return []


def counted(number: int, noun: str) -> str:
    """The number with its noun: `1 word`, `1,200 words`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
