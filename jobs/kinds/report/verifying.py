"""The resident model's second look at the texts of a report, sentence by sentence."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

from thothy_ai.jobs import checks
from thothy_ai.jobs.api.plan import Calls, Context, Outputs
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.api.verdict import Rejection, VerifiedClaim
from thothy_ai.jobs.plans.verification import Claim, refuted, verify


class Verified(NamedTuple):
    """The findings on each text, by its place, and why those that the request lets a finding decide on are rejected."""

    findings: Mapping[int, tuple[VerifiedClaim, ...]]
    rejections: Mapping[int, Rejection]


def verified(
    texts: Mapping[int, str], source: str, request: WritingRequest[Any], context: Context
) -> Generator[Calls, Outputs, Verified]:
    """Verify the sentences of texts, without a call if the request asks for none."""
    if request.verification == "off" or not texts:
        return Verified({}, {})
    listed = [(place, sentence) for place, text in texts.items() for sentence in checks.sentences(text, request.locale)]
    verification = yield from verify(source, [Claim(sentence) for _, sentence in listed], context)
    findings: dict[int, tuple[VerifiedClaim, ...]] = {}
    rejections: dict[int, Rejection] = {}
    for (place, sentence), finding in zip(listed, verification.claims, strict=True):
        findings[place] = (*findings.get(place, ()), finding)
        rejection = refuted(Claim(sentence), finding)
        if rejection and request.verification == "enforce":
            rejections.setdefault(place, rejection)
    return Verified(findings, rejections)
