"""Which attempt at a job is of use: its seconds are useful or a draft's, and those of all others are wasted.

The report, the bill and what people are shown choose in Postgres, by the fragment `best_draft`; this is the same choice
where nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from thothy_ai.jobs.api.kind import Policy
from thothy_ai.jobs.api.verdict import Finding
from thothy_ai.plans.advance import Judgement


def kept_attempt(judgements: Sequence[Judgement]) -> int | None:
    """The index of the accepted attempt or, if a person may edit drafts, of the best one, the latest of equal ones."""

    def rank(index: int) -> tuple[bool, tuple[int, float], int]:
        judged = judgements[index]
        return judged.accepted, usefulness(judged.body, judged.findings), index

    best = max(range(len(judgements)), key=rank)
    found = judgements[best]
    return best if found.accepted or (found.body and found.policy is Policy.REVIEW) else None


def usefulness(body: Mapping[str, Any] | None, findings: Iterable[Finding]) -> tuple[int, float]:
    """How useful a draft is to who edits it, to be compared: by its fields, then by how little was found against it."""
    return len(body or ()), -sum(finding.weight for finding in findings)
