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


MANY = "The town has 37 buses. It built 52 shops. Later it planted 91 trees. It closed 18 schools. It bought 64 boats."


@pytest.mark.parametrize("text", ["15 houses", "55 buses", "27 boats", "up 41 percent"])
def test_no_small_result_of_figures_that_count_different_things(text: str) -> None:
    assert reason(checks.new_number(text, MANY, "en")) is RejectionReason.NUMBER_NOT_IN_SOURCE


RENTS = (
    "The town lets houses for 220 euros per month to 31 people, nine of them children. A kilo costs 12.3 euros, and"
    " 48 % of 4,120 guests came back; 38 % stayed."
)


@pytest.mark.parametrize("text", ["The rent is 22 euros.", "A kilo costs 123 euros.", "A kilo costs 1.2 euros."])
def test_a_misprint_with_the_unit_of_its_figure_is_no_sum(text: str) -> None:
    """31 and nine leave 22, but no euros."""
    assert reason(checks.new_number(text, RENTS, "en")) is RejectionReason.NUMBER_NOT_IN_SOURCE


@pytest.mark.parametrize(
    "text", ["Of 31 people, 22 are adults.", "A kilo costs 12 euros.", "Nearly half came back.", "The other 62 % left."]
)
def test_rounded_figures_rests_and_other_units_are_no_misprints(text: str) -> None:
    assert checks.new_number(text, RENTS, "en") is None
