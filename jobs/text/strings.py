"""Checks of strings in requests and artifacts: Postgres, JSON and the tokenizer must all be able to encode them.

`counted` words a number in the messages about them; `blanked` hides what a check is not about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic_core import PydanticCustomError

MAX_CHARACTERS = 2**20  # per text: a megabyte of English, up to four of other scripts
MAX_LEVELS = 128  # nested lists and objects: JSON readers and writers have limits as well


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


def strings_in(value: object) -> Iterator[str]:
    """All strings in a value, nested ones and dictionary keys included, level by level.

    Raises `PydanticCustomError` for a value of more than `MAX_LEVELS` levels.
    """
    level = [value]
    for _ in range(MAX_LEVELS + 1):
        inner: list[object] = []
        for each in level:
            match each:
                case str():
                    yield each
                case dict():
                    inner += each
                    inner += each.values()
                case list() | tuple() | set() | frozenset():
                    inner += each
        if not inner:
            return
        level = inner
    raise PydanticCustomError("nesting", "is nested more than {limit} levels deep", {"limit": MAX_LEVELS})


def blanked(pattern: re.Pattern[str], text: str) -> str:
    """The text with each match of a pattern replaced by spaces, so that positions stay valid."""
    return pattern.sub(lambda match: " " * len(match[0]), text)


def visible(text: str) -> str:
    """The text with unprintable characters escaped, including all that cannot be stored."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def counted(number: int, noun: str) -> str:
    """The number with its noun: `1 word`, `1,200 words`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
