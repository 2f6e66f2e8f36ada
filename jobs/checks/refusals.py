"""Texts that are no answer: a refusal, and talk about the text or the task."""

from __future__ import annotations

import re
from functools import cache

from thothy_ai.jobs.checks.tables import table
from thothy_ai.jobs.verdict import Rejection, RejectionReason

# Where a sentence begins, and what may stand before its first word. A quotation begins none: its speaker may be sorry.
_STARTS = re.compile(r"(?:\A[\s*_#>(\[-]*|(?:[.!?。！？…]|[.!?…][\"”“»」)])\s*[(\[（]?|\n[\s*_#>-]*|。)(?=[^\W_])")


def refusal(text: str, source: str = "") -> Rejection | None:
    """Reject a text in which a model refuses, such as "As an AI, I cannot ...", unless the source does so, too."""
    found = _first(text, "refusal")
    if not found or (source and _first(source, "refusal")):
        return None
    return Rejection(RejectionReason.REFUSAL, f"refuses: {found!r}")


def meta_talk(text: str, source: str = "") -> Rejection | None:
    """Reject talk about the text or the task, such as "The text discusses ...", unless the source talks so, too."""
    anywhere = re.search(_anywhere(), text)
    found = _first(text, "meta_talk") or (anywhere[0] if anywhere else None)
    if not found or (source and (_first(source, "meta_talk") or re.search(_anywhere(), source))):
        return None
    return Rejection(RejectionReason.META_TALK, f"talks about the text: {found!r}")


def _first(text: str, section: str) -> str | None:
    """The first beginning of a sentence that is in the table."""
    plain, pattern = _unquoted(text.replace("’", "'").strip()), _beginnings(section)
    found = (pattern.match(plain, start.end()) for start in _STARTS.finditer(plain))
    return next((match[0] for match in found if match), None)


def _unquoted(text: str) -> str:
    return text[1:-1] if text[:1] in '"“„«「' and text[-1:] in '"”“»」' else text


@cache
def _beginnings(section: str) -> re.Pattern[str]:
    patterns = [pattern for patterns in table("refusals")[section].values() for pattern in patterns]
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns).replace("['’]", "'"), re.IGNORECASE)


@cache
def _anywhere() -> re.Pattern[str]:
    return re.compile("|".join(table("refusals")["anywhere"]["meta_talk"]), re.IGNORECASE)
