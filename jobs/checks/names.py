"""Names of people, organisations and brands that the source does not have."""

from __future__ import annotations

import re
from collections.abc import Iterable

from thothy_ai.jobs.checks.segments import sentences
from thothy_ai.jobs.verdict import Rejection, RejectionReason

_NAME = re.compile(r"\b[A-ZÀ-ÖØ-ÞА-ЯΑ-Ω][\w’'-]+(?: [A-ZÀ-ÖØ-ÞА-ЯΑ-Ω][\w’'-]+)+")


def new_name(text: str, source: str, locale: str, allowed: Iterable[str] = ()) -> Rejection | None:
    """Reject a name of several words of which no word is in the source or in `allowed`."""
    known = " ".join([source, *allowed]).casefold()
    for sentence in sentences(text, locale):
        for found in _NAME.finditer(sentence):
            if found.start() and not any(word.casefold()[:5] in known for word in found[0].split()):
                return Rejection(RejectionReason.NAME_NOT_IN_SOURCE, f"{found[0]!r} is not in the source")
    return None
