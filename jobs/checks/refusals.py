"""Texts that do not answer: refusals, and talk about the text or the task."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from itertools import chain

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.tables import table

_QUOTATION = re.compile(
    '“[^”“]{0,400}”|„[^“”„]{0,400}[“”]|«[^«»]{0,400}»|»[^«»]{0,400}«|「[^「」]{0,400}」|"[^"]{0,400}"'
)
# The beginning of a sentence, and what may precede its first word. Quotations are excluded: their speaker may be sorry.
_STARTS = re.compile(r"(?:\A[\s*_#>(\[-]*|(?:[.!?。！？…]|[.!?…][\"”“»」)])\s*[(\[（]?|\n[\s*_#>-]*|。)(?=[^\W_])")


def refusal(text: str, source: str = "") -> Rejection | None:
    """Reject a text in which a model refuses, such as "As an AI, I cannot ...", unless the source does so, too."""
    found = _found(text, "refusal")
    if not found or (source and _found(source, "refusal")):
        return None
    return Rejection(RejectionReason.REFUSAL, f"refuses: {found!r}")


def meta_talk(text: str, source: str = "") -> Rejection | None:
    """Reject talk about the text or the task, such as "The text discusses ..." or "Write a summary ...".

    Passes if the source talks like that as well.
    """
    found = _found(text, "meta_talk")
    if not found or (source and _found(source, "meta_talk")):
        return None
    return Rejection(RejectionReason.META_TALK, f"talks about the text: {found!r}")


def _found(text: str, section: str) -> str | None:
    """The first match of the table: at the beginning of a sentence, or anywhere outside quotations."""
    patterns = _patterns(section)
    text = unicodedata.normalize("NFC", text).replace("’", "'")
    plain = text.strip()
    if plain[:1] in '"“„«「' and plain[-1:] in '"”“»」':
        plain = plain[1:-1]
    for start in _STARTS.finditer(plain):
        if match := patterns.beginning.match(plain, start.end()):
            return match[0]
        opener = patterns.apology.match(plain, start.end()) if section == "refusal" else None
        if opener and (match := patterns.after_apology.match(plain, opener.end())):
            return f"{opener[0]}{match[0]}"
    anywhere = patterns.anywhere.search(_QUOTATION.sub(" ", text) if section == "refusal" else text)
    return anywhere[0] if anywhere else None


class _Patterns:
    """The patterns of one section of the table."""

    def __init__(self, section: str) -> None:
        entries = table("refusals")
        openers, refusals = entries["openers"], chain.from_iterable(entries["refusal"].values())
        self.beginning = _any_of(chain.from_iterable(entries[section].values()))
        self.apology = _any_of([openers["apology"]])
        self.after_apology = _any_of([*refusals, *openers["inability"]])
        self.anywhere = _any_of(entries["anywhere"][section])


_patterns = cache(_Patterns)


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    joined = "|".join(f"(?:{pattern})" for pattern in patterns)
    return re.compile(unicodedata.normalize("NFC", joined).replace("['’]", "'"), re.IGNORECASE)
