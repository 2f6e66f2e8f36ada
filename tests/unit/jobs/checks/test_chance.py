"""The chance of a coincidence, and what follows from a source by more than one step."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.unit.jobs.checks.reasons import reason
from thothy_ai.jobs import RejectionReason, checks
from thothy_ai.jobs.checks.chance import chance, chance_sorted

NEW = RejectionReason.NUMBER_NOT_IN_SOURCE


def test_a_precise_number_agrees_by_chance_less_often_than_a_small_one() -> None:
    assert chance(Decimal(8680), [8680.0, 9000.0]) < 0.02 < chance(Decimal(9), [9.0, 12.0]) < 0.5


def test_the_chance_grows_with_the_results_around_a_number() -> None:
    few, many = ([float(value) for value in range(40, 40 + count)] for count in (2, 20))
    assert chance(Decimal(40), many) == pytest.approx(10 * chance(Decimal(40), few))


@pytest.mark.parametrize("values", [[], [30.0], [41.0, 500.0]])
def test_it_is_certain_where_nothing_agrees(values: list[float]) -> None:
    assert chance(Decimal(40), values) == chance_sorted(Decimal(40), [sorted(values)]) == 1.0


def test_both_ways_to_estimate_it_agree() -> None:
    values = [31.0, 39.6, 44.0, 90.0]
    assert chance(Decimal(40), values) == pytest.approx(chance_sorted(Decimal(40), [values[:2], values[2:]]))


TRAM = (
    "Line 3 carried 61,000, 66,000, 71,000 and 78,000 passengers in its first four weeks. Of 140 shops asked, 49 sell"
    " more, 28 sell less and the rest see no change. The depot costs 3.6 million euros: the region pays 40 %, the state"
    " 0.9 million and the city the rest. It opened on 14 June 2024. Weekday trams come every 8 minutes."
)


@pytest.mark.parametrize(
    "text",
    [
        "Line 3 carried 276,000 passengers in four weeks.",
        "An average of 69,000 passengers a week took line 3.",
        "63 of the 140 shops see no change: 45%.",
        "The region pays 1.44 million euros, the state 0.9: the city pays 1.26 million.",
        "Passengers rose by 28% from the first to the fourth week.",
        "It opened in June 2024.",
    ],
)
def test_what_follows_in_several_steps_is_no_new_number(text: str) -> None:
    assert checks.new_number(text, TRAM, "en") is None


@pytest.mark.parametrize(
    "text",
    [
        "Line 3 carried 296,000 passengers in four weeks.",
        "An average of 82,000 passengers a week took line 3.",
        "The city pays 1.9 million euros for the depot.",
        "Passengers rose by 38% from the first to the fourth week.",
        "It opened on 14 August.",
        "Weekday trams come every 6 minutes.",
    ],
)
def test_what_does_not_is_one(text: str) -> None:
    assert reason(checks.new_number(text, TRAM, "en")) is NEW
