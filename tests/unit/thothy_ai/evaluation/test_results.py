"""What evaluated cases took, what of it was wasted, and what their verifications add."""

from __future__ import annotations

from dataclasses import replace

import pytest

from thothy_ai.evaluation.results import CaseResult, EvaluationResult

CASE = CaseResult("1", True, None, "", 1, None, None, None, 2.0, 50, None, "", computed_tokens=100)
VERIFIED = replace(CASE, verification_seconds=0.5, verification_tokens=20)
REJECTED = replace(CASE, accepted=False, wasted_seconds=2.0, wasted_tokens=100)


def result(*cases: CaseResult) -> EvaluationResult:
    return EvaluationResult("m", "m", "cpu", "hook", "2", 1, None, cases)


def test_a_verification_s_share_is_of_what_the_verified_cases_took_besides() -> None:
    both = result(CASE, VERIFIED, VERIFIED)
    assert both.verification_share == pytest.approx(0.5 / 1.5)
    assert both.verification_tokens == pytest.approx(20 / 80)
    assert result(CASE).verification_tokens is None
    assert both.to_json()["verification_share_of_tokens"] == pytest.approx(0.25)


def test_waste_is_a_share_of_what_all_attempts_took() -> None:
    assert (result(CASE, REJECTED).wasted, result(CASE, REJECTED).wasted_tokens) == (0.5, 0.5)
    retried = replace(CASE, compute_seconds=6.0, wasted_seconds=4.0, computed_tokens=300, wasted_tokens=200)
    assert result(retried).wasted_tokens == pytest.approx(2 / 3)
    nothing = replace(CASE, compute_seconds=0.0, computed_tokens=0)
    assert (result(nothing).wasted, result(nothing).wasted_tokens) == (None, None)
