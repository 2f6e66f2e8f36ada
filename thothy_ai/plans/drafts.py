"""Which attempt at a job is kept: its seconds are useful, or those of a draft; the seconds of all others are wasted.

The report, the bill and the console make this choice in Postgres, by the fragment `best_draft`. This module makes the
same choice where nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from thothy_ai.jobs.api.kind import Policy
from thothy_ai.jobs.api.verdict import Finding
from thothy_ai.plans.advance import Judgement


def kept_attempt(judgements: Sequence[Judgement]) -> int | None:
    """The index of the accepted attempt or, if a person may edit drafts, of the best draft; the latest among equals."""

    def rank(index: int) -> tuple[bool, tuple[int, float], int]:
        judged = judgements[index]
        return judged.accepted, usefulness(judged.body, judged.findings), index

    best = max(range(len(judgements)), key=rank)
    found = judgements[best]
    return best if found.accepted or (found.body and found.policy is Policy.REVIEW) else None


def usefulness(body: Mapping[str, Any] | None, findings: Iterable[Finding]) -> tuple[int, float]:
    """A sort key for drafts, the most useful to an editor last: by number of fields, then by lack of findings."""
    return len(body or ()), -sum(finding.weight for finding in findings)
