"""Figures that follow from two of a source by one calculation, and misprints of them."""

from __future__ import annotations

import pytest

from tests.unit.jobs.checks.reasons import reason
from thothy_ai.jobs import RejectionReason, checks
from thothy_ai.jobs.checks.arithmetic import Results
from thothy_ai.jobs.checks.quantities import quantities

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


def test_a_long_table_and_a_long_number_take_no_longer_than_what_is_used_of_them() -> None:
    source = "9" * 5_000 + " " + " ".join(f"{value} shops" for value in range(10_000, 13_000))
    assert len(Results(quantities(source, "en"))._misprintable) <= 2_000
