"""Searches texts for many regular expressions that seldom match.

Python's `re` tries every alternative at every character, which takes 2 us per character for the expressions of
prompt_injection.toml. The `regex` crate, which comes with pydantic, rules out most of them in a thirtieth of that time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache

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
            self._patterns.append((_screen(screened), re.compile(each, re.IGNORECASE | re.MULTILINE)))

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """All matches by their start; matches with the same start in the order of the patterns."""
        found = (match for pattern in self._possible(text) for match in pattern.finditer(text))
        return iter(sorted(found, key=re.Match.start))

    def is_in(self, text: str) -> bool:
        """Whether any of them finds something."""
        return any(pattern.search(text) for pattern in self._possible(text))

    def _possible(self, text: str) -> Iterator[re.Pattern[str]]:
        if not _is_unicode(text):
            return (pattern for _, pattern in self._patterns)
        plain = _without_dots(text)
        return (pattern for screen, pattern in self._patterns if screen is None or screen.isinstance_python(plain))


_LOOKAROUND = re.compile(r"\(\?<?[=!][^()]*\)")
# What the looser pattern would not cover: an escape that `_LOOSER` widens in a class that excludes it, and a quantifier
# after a lookaround, which would count what is before it.
_NOT_LOOSER = re.compile(r"\[\^[^\]\\]*(?:\\.[^\]\\]*)*\\[wdWDSb]|\[[^\]]*\\[WDb]|\(\?<?[=!][^()]*\)[*+?{]")
_LOOSER = {r"\b": "", r"\w": "[^ ]", r"\d": "[^ ]", r"\S": "[^ ]", r"\W": "(?s:.)", r"\s": r"[\s\x1c-\x1f]"}


def may_match(pattern: str, text: str) -> bool:
    """Whether `re` may find a pattern that ignores case. If not, it finds nothing.

    The crate looks for a looser pattern: without lookarounds and borders, and with any character but a space for a
    letter or digit, since classes of Unicode make it large. Not for ranges in classes that end beside ı.
    """
    screen = _loose_screen(pattern)
    if screen is None:
        return True
    if not text.isascii():
        if not _is_unicode(text):
            return True
        text = _without_dots(text)
    return screen.isinstance_python(text)


def _is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogate: the crate reads valid Unicode only."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@cache
def _loose_screen(pattern: str) -> SchemaValidator | None:
    if _NOT_LOOSER.search(pattern):
        return None
    loose = _ESCAPE.sub(lambda found: _LOOSER.get(found[0], found[0]), _LOOKAROUND.sub("", _without_dots(pattern)))
    return _screen(loose)


def _screen(pattern: str) -> SchemaValidator | None:
    """The crate's form of a pattern, or None if the crate cannot read it: it has no lookarounds, for example."""
    with suppress(SchemaError):
        return SchemaValidator(core_schema.str_schema(pattern=f"(?im){pattern}", regex_engine="rust-regex"))
    return None


def _without_dots(text: str) -> str:
    """A text with every dotted or dotless i replaced by one letter: `re` equates them when it ignores case, the crate
    does not.
    """
    return text.replace("ı", "i").replace("İ", "i")
