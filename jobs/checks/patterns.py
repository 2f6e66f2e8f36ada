"""Searches texts for many regular expressions that seldom match.

Python's `re` tries every alternative at every character, which takes 2 us per character for the expressions of
prompt_injection.toml. The `regex` crate, which comes with pydantic, rules out most of them in a thirtieth of that time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from pydantic_core import SchemaError, SchemaValidator, core_schema

_ESCAPE = re.compile(r"\\.")
_IN_THE_CRATE = {  # the crate's spelling of `re`'s classes; no borders: the crate is slow with Unicode's
    r"\b": "",
    r"\w": r"[\p{L}\p{N}_]",
    r"\W": r"[^\p{L}\p{N}_]",
    r"\s": r"[\s\x1c-\x1f]",
    r"\S": r"[^\s\x1c-\x1f]",
}


class Patterns:
    """Regular expressions in Python's syntax, which ignore case; `^` and `$` match at the borders of lines.

    Not for classes with `&&`, `--` or `~~`, which the crate reads otherwise, nor for `\\W` and `\\D`, which exclude
    letters and digits of the crate's version of Unicode.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns: list[tuple[SchemaValidator | None, re.Pattern[str]]] = []
        for each in patterns:
            screened = _ESCAPE.sub(lambda found: _IN_THE_CRATE.get(found[0], found[0]), _without_dots(each))
            schema = core_schema.str_schema(pattern=f"(?im){screened}", regex_engine="rust-regex")
            screen = None
            with suppress(SchemaError):  # which the crate raises for lookarounds, for example
                screen = SchemaValidator(schema)
            self._patterns.append((screen, re.compile(each, re.IGNORECASE | re.MULTILINE)))

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """All matches by their start; matches with the same start in the order of the patterns."""
        found = (match for pattern in self._possible(text) for match in pattern.finditer(text))
        return iter(sorted(found, key=re.Match.start))

    def is_in(self, text: str) -> bool:
        """Whether any of them finds something."""
        return any(pattern.search(text) for pattern in self._possible(text))

    def _possible(self, text: str) -> Iterator[re.Pattern[str]]:
        try:
            text.encode()
        except UnicodeEncodeError:  # the crate reads valid Unicode only
            return (pattern for _, pattern in self._patterns)
        plain = _without_dots(text)
        return (pattern for screen, pattern in self._patterns if screen is None or screen.isinstance_python(plain))


def _without_dots(text: str) -> str:
    """A text with every dotted or dotless i replaced by one letter: `re` equates them when it ignores case, the crate
    does not.
    """
    return text.replace("ı", "i").replace("İ", "i")
