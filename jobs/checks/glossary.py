"""A producer's terms: a glossary, and terms that are not to be translated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from thothy_ai.jobs.verdict import Rejection, RejectionReason


def glossary(text: str, original: str, terms: Mapping[str, str], keep: Iterable[str]) -> Rejection | None:
    """Reject a translation that lacks the translation of a term, or a term to be kept, that its original has."""
    for term, wanted in [*terms.items(), *((term, term) for term in keep)]:
        if term.casefold() in original.casefold() and wanted.casefold() not in text.casefold():
            return Rejection(RejectionReason.GLOSSARY, f"{term!r} is not rendered as {wanted!r}")
    return None
