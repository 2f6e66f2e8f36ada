"""The resident model's second look at the texts of a report, sentence by sentence."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

from thothy_ai.jobs import checks
from thothy_ai.jobs.api.plan import Calls, Context, Outputs
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.api.verdict import ClaimFinding, Rejection
from thothy_ai.jobs.plans.review import Statement, look_again, refuted


class Reviewed(NamedTuple):
    """The findings on each text, by its place, and why those that the request lets a finding decide on are rejected."""

    findings: Mapping[int, tuple[ClaimFinding, ...]]
    rejections: Mapping[int, Rejection]


def reviewed(
    texts: Mapping[int, str], source: str, request: WritingRequest[Any], context: Context
) -> Generator[Calls, Outputs, Reviewed]:
    """Review the sentences of texts, without a call if the request asks for no review."""
    if request.review == "off" or not texts:
        return Reviewed({}, {})
    listed = [(place, sentence) for place, text in texts.items() for sentence in checks.sentences(text, request.locale)]
    review = yield from look_again(source, [Statement(sentence) for _, sentence in listed], context)
    findings: dict[int, tuple[ClaimFinding, ...]] = {}
    rejections: dict[int, Rejection] = {}
    for (place, sentence), finding in zip(listed, review.findings, strict=True):
        findings[place] = (*findings.get(place, ()), finding)
        rejection = refuted(Statement(sentence), finding)
        if rejection and request.review == "enforce":
            rejections.setdefault(place, rejection)
    return Reviewed(findings, rejections)
