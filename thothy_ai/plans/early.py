"""Whether an unfinished output will be rejected: for its language, or by its call's early checks."""

from __future__ import annotations

import json
import re
from contextlib import suppress

from thothy_ai.jobs import Early, Rejection, RejectionReason, checks
from thothy_ai.jobs.early import doomed

_STRING = re.compile(r'"((?:[^"\\]|\\.)*)(?:"(\s*:)?|\\?$)', re.DOTALL)
# Quotations are in the source's language.
_EVIDENCE = re.compile(r'"quotes?":(?:\[(?:"(?:[^"\\]|\\.)*"?,?)*\]?|"(?:[^"\\]|\\.)*"?)', re.DOTALL)
_MIN_CHARACTERS = 12  # of a text; shorter ones are constants rather than prose


def early_rejection(text: str, locale: str | None, early: Early | None) -> Rejection | None:
    """Why to stop an unfinished output; None if it can continue. Its language is checked unless `locale` is None."""
    if locale is not None and is_wrong_language(text, locale):
        return Rejection(RejectionReason.WRONG_LANGUAGE, "the output was stopped after its first sentences")
    return doomed(text, early) if early is not None else None


def is_wrong_language(text: str, locale: str) -> bool:
    """Whether the prose in this possibly unfinished JSON document is not in the locale's language."""
    prose = " ".join(prose_of(text))
    return checks.wrong_language(prose, locale) is not None


def prose_of(text: str) -> list[str]:
    """The longer texts in a possibly unfinished JSON document, without its keys; the last word can be cut off."""
    prose = []
    for match in _STRING.finditer(_EVIDENCE.sub("", text)):
        if match[2] is None:  # a value, not a key
            value = match[1]
            with suppress(ValueError):  # for an escape that is cut off
                value = json.loads(f'"{value}"')
            if len(match[1]) >= _MIN_CHARACTERS:
                prose.append(value)
    return prose
