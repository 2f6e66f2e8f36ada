"""Texts that are no answer: a refusal, and talk about the text or the task."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.tables import table

_QUOTATION = re.compile(
    '“[^”“]{0,400}”|„[^“”„]{0,400}[“”]|«[^«»]{0,400}»|»[^«»]{0,400}«|「[^「」]{0,400}」|"[^"]{0,400}"'
)
# Where a sentence begins, and what may stand before its first word. A quotation begins none: its speaker may be sorry.
_STARTS = re.compile(r"(?:\A[\s*_#>(\[-]*|(?:[.!?。！？…]|[.!?…][\"”“»」)])\s*[(\[（]?|\n[\s*_#>-]*|。)(?=[^\W_])")


def refusal(text: str, source: str = "") -> Rejection | None:
    """Reject a text in which a model refuses, such as "As an AI, I cannot ...", unless the source does so, too."""
    found = _found(text, "refusal")
    if not found or (source and _found(source, "refusal")):
        return None
    return Rejection(RejectionReason.REFUSAL, f"refuses: {found!r}")


def meta_talk(text: str, source: str = "") -> Rejection | None:
    """Reject talk about the text or the task, such as "The text discusses ..." or "Write a summary ...".

    Passes if the source talks so, too.
    """
    found = _found(text, "meta_talk")
    if not found or (source and _found(source, "meta_talk")):
        return None
    return Rejection(RejectionReason.META_TALK, f"talks about the text: {found!r}")


def _found(text: str, section: str) -> str | None:
    """The first beginning of a sentence, or what is anywhere but in a quotation, that is in the table."""
    plain = unicodedata.normalize("NFC", text).replace("’", "'")
    if first := _first(plain.strip(), section):
        return first
    anywhere = _anywhere(section).search(_QUOTATION.sub(" ", plain) if section == "refusal" else plain)
    return anywhere[0] if anywhere else None


def _first(text: str, section: str) -> str | None:
    """The first beginning of a sentence that is in the table, or what goes on so after an apology."""
    plain, pattern = _unquoted(text), _beginnings(section)
    for start in _STARTS.finditer(plain):
        if match := pattern.match(plain, start.end()):
            return match[0]
        opener = _opener().match(plain, start.end()) if section == "refusal" else None
        if opener and (match := _after_apology().match(plain, opener.end())):
            return f"{opener[0]}{match[0]}"
    return None


def _unquoted(text: str) -> str:
    return text[1:-1] if text[:1] in '"“„«「' and text[-1:] in '"”“»」' else text


@cache
def _beginnings(section: str) -> re.Pattern[str]:
    return _any_of(pattern for patterns in table("refusals")[section].values() for pattern in patterns)


@cache
def _opener() -> re.Pattern[str]:
    return _any_of([table("refusals")["openers"]["apology"]])


@cache
def _after_apology() -> re.Pattern[str]:
    refusals = (pattern for patterns in table("refusals")["refusal"].values() for pattern in patterns)
    return _any_of([*refusals, *table("refusals")["openers"]["inability"]])


@cache
def _anywhere(section: str) -> re.Pattern[str]:
    return _any_of(table("refusals")["anywhere"][section])


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    joined = "|".join(f"(?:{pattern})" for pattern in patterns)
    return re.compile(unicodedata.normalize("NFC", joined).replace("['’]", "'"), re.IGNORECASE)
