"""The attempts without an artifact, as the report, the page and `thothy top` name them."""

from __future__ import annotations

from collections import Counter

from thothy_ai.admin.report.drain_report import AttemptKey, Figures


def test_attempts_without_an_artifact_are_named_by_outcome_and_reason() -> None:
    ends = {("succeeded", None): 5, ("rejected", "repetition"): 3, ("rejected", "too_short"): 2, ("lost", None): 1}
    figures = Figures(attempts=Counter({AttemptKey(*end): number for end, number in ends.items()}))
    named = {key.label: number for key, number in figures.unsuccessful.items()}
    assert named == {"rejected: repetition": 3, "rejected: too_short": 2, "lost": 1}
