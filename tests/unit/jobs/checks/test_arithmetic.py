"""Figures that follow from two of a source by one calculation, and misprints of them."""

from __future__ import annotations

import pytest

from tests.unit.jobs.checks.reasons import reason
from thothy_ai.jobs import RejectionReason, checks

SOURCE = (
    "The council answered 212,000 questions in 14 months, 31 percent of them with an apology. A sack costs 4.10 euros,"
    " without the label 2.90 euros. It runs 37 buses, each for 52,400 pounds a month.\n\nIt will buy 16 buses more."
)


@pytest.mark.parametrize(
    "text",
    [
        "some 15,000 questions a month",
        "about 66,000 apologies",
        "1.20 euros more",
        "a price higher by 41 percent",
        "69 of 100 without an apology",
        "629,000 pounds a year",
        "soon 53 buses",
    ],
)
def test_what_follows_from_the_source_is_no_new_number(text: str) -> None:
    assert checks.new_number(text, SOURCE, "en") is None


@pytest.mark.parametrize("text", ["122,000 questions", "21,200 questions", "73 buses", "87 percent", "41 euros a sack"])
def test_misprints_and_other_numbers_are_new(text: str) -> None:
    assert reason(checks.new_number(text, SOURCE, "en")) is RejectionReason.NUMBER_NOT_IN_SOURCE
