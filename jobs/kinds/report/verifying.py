"""Verification of the texts of a report, sentence by sentence."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from thothy_ai.jobs.api.plan import Calls, Context, Outputs
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.api.verdict import Finding, Verification, VerifiedClaim
from thothy_ai.jobs.plans.verification import claims_of, doubt, verify


class Stated(NamedTuple):
    """A text of a report with the path of its field, and the quotations that it rests on."""

    part: str
    text: str
    quotes: Sequence[str] = ()


class Verified(NamedTuple):
    """The claims of a text with their labels, and the doubts."""

    claims: tuple[VerifiedClaim, ...] = ()
    doubts: tuple[Finding, ...] = ()


def verified(
    texts: Mapping[int, Stated], source: str, request: WritingRequest[Any], context: Context
) -> Generator[Calls, Outputs, dict[int, Verified]]:
    """Verify texts; makes no call if the request does not ask for verification."""
    if not request.verification:
        return {}
    claims = {
        place: list(claims_of(text, part, request.source, request.locale, quotes))
        for place, (part, text, quotes) in texts.items()
    }
    labelled = iter((yield from verify([claim for of_text in claims.values() for claim in of_text], context, source)))
    found = {}
    for place, of_text in claims.items():
        labels = tuple(next(labelled) for _ in of_text)
        doubts = (doubt(*pair, request.source, context) for pair in zip(of_text, labels, strict=True))
        found[place] = Verified(labels, tuple(filter(None, doubts)))
    return found


def summed_up(found: Iterable[Verified]) -> tuple[Verification | None, tuple[Finding, ...]]:
    """The combined verification of several texts, and the doubts; None if nothing was verified."""
    of_texts = list(found)
    claims = tuple(claim for each in of_texts for claim in each.claims)
    return (Verification(claims) if claims else None), tuple(doubt for each in of_texts for doubt in each.doubts)
