"""Which attempt at a job is of use: its seconds are useful or a draft's, and those of all others are wasted.

The report, the bill and what people are shown choose in Postgres, by the fragment `best_draft`; this is the same choice
where nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence

from thothy_ai.jobs.api.kind import Policy
from thothy_ai.plans.advance import Judgement


def kept_attempt(judgements: Sequence[Judgement]) -> int | None:
    """The index of the accepted attempt or, if a person may edit drafts, of the best draft: the one with most fields,
    against which least was found, the latest of equal ones.
    """

    def usefulness(index: int) -> tuple[bool, int, float, int]:
        judged = judgements[index]
        weight = sum(finding.weight for finding in judged.findings)
        return judged.accepted, len(judged.body or ()), -weight, index

    best = max(range(len(judgements)), key=usefulness)
    found = judgements[best]
    return best if found.accepted or (found.body and found.policy is Policy.REVIEW) else None
