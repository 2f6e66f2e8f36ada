"""How a text addresses its reader: formally or informally, by pronouns."""

from __future__ import annotations

import re
from functools import cache

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.copying import QUOTATION
from thothy_ai.jobs.checks.numbers import primary
from thothy_ai.jobs.checks.tables import table
from thothy_ai.jobs.text.strings import blanked

_OTHER = {"formal": "informal", "informal": "formal"}


def address(text: str, formality: str, locale: str) -> Rejection | None:
    """Reject a text that addresses its reader, outside quotations, only in the form that was not asked for. Where only
    a capital tells the pronoun (German „Sie“), pronouns at the beginning of a sentence do not count.
    """
    if formality not in _OTHER:
        return None
    plain = blanked(QUOTATION, text)
    wrong, right = (_pronouns(form, primary(locale)) for form in (_OTHER[formality], formality))
    if wrong is None or right is None or right.search(plain) or not (found := wrong.search(plain)):
        return None
    detail = f"addresses the reader {_OTHER[formality]}ly: {found[0]!r}"
    return Rejection(RejectionReason.FORMALITY, detail, found.span())


@cache
def _pronouns(form: str, language: str) -> re.Pattern[str] | None:
    listed = table("speech")[form].get(language)
    if not listed:
        return None
    if listed[0].isupper():
        return re.compile(rf"(?:(?<=[^\W\d_] )|(?<=[,;] ))(?:{listed})\b(?!-)")
    return re.compile(rf"(?<![\w'’-])(?:{listed})(?![\w'’-])", re.IGNORECASE)
