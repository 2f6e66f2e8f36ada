"""Which attempt at a job is kept, and what that leaves as waste."""

from __future__ import annotations

from dataclasses import replace

import pytest

from thothy_ai.engine.api import Usage
from thothy_ai.evaluation.results import case_result
from thothy_ai.evaluation.run import CaseAttempt
from thothy_ai.jobs.api.kind import Policy
from thothy_ai.jobs.api.verdict import Finding, RejectionReason
from thothy_ai.jobs.evaluation.cases import bundled
from thothy_ai.plans.advance import Judgement
from thothy_ai.plans.drafts import kept_attempt
from thothy_ai.plans.follow import CallLog
from thothy_ai.plans.running_call import NOTHING_USED


def attempt(fields: int, *weights: float, accepted: bool = False, policy: Policy = Policy.REVIEW) -> Judgement:
    findings = tuple(Finding(RejectionReason.TRUNCATED, "", weight=weight) for weight in weights)
    reason = None if accepted else RejectionReason.TRUNCATED
    body = {f"field{number}": "" for number in range(fields)} or None
    return Judgement(accepted, reason, "", "en", "1", body, findings=findings, policy=policy)


class Spent(CallLog):
    """The calls of an attempt that took so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    @property
    def usage(self) -> Usage:
        return replace(NOTHING_USED, compute_seconds=self.seconds)


@pytest.mark.parametrize(
    ("attempts", "kept"),
    [
        ([attempt(1, accepted=True)], 0),
        ([attempt(3), attempt(1, 0.9, accepted=True)], 1),
        ([attempt(2, 0.9), attempt(3, 0.9, 0.9), attempt(0)], 1),  # the most fields
        ([attempt(2, 0.5, 0.6), attempt(2, 0.9), attempt(2, 0.9, 0.2)], 1),  # the least against it
        ([attempt(2, 0.9), attempt(2, 0.9)], 1),  # the latest
        ([attempt(0), attempt(0)], None),
        ([attempt(2, policy=Policy.PUBLISH)], None),
        ([attempt(2, policy=Policy.STRICT)], None),
        ([attempt(2, policy=Policy.PUBLISH), attempt(2, accepted=True, policy=Policy.PUBLISH)], 1),
    ],
)
def test_an_accepted_attempt_is_kept_or_the_best_draft(attempts: list[Judgement], kept: int | None) -> None:
    assert kept_attempt(attempts) == kept


@pytest.mark.parametrize(
    ("judgements", "wasted", "to_edit"),
    [
        ([attempt(2, 0.9), attempt(1), attempt(0)], 6.0, True),  # of 1, 2 and 4 seconds
        ([attempt(2, 0.9), attempt(2, accepted=True)], 1.0, False),
        ([attempt(2, 0.9, policy=Policy.STRICT), attempt(1, policy=Policy.STRICT)], 3.0, False),
        ([attempt(0)], 1.0, False),
    ],
)
def test_what_is_not_kept_is_wasted(judgements: list[Judgement], wasted: float, *, to_edit: bool) -> None:
    attempts = [CaseAttempt(judged, Spent(2.0**index)) for index, judged in enumerate(judgements)]
    result = case_result(bundled("hook")[0], attempts)
    assert (result.wasted_seconds, result.to_edit) == (wasted, to_edit)
