"""A direction belongs to what it is said of: a price, a speed, a bound, a period. Only its own opposite reverses it."""

from __future__ import annotations

import pytest

from thothy_ai.jobs import RejectionReason, checks
from thothy_ai.jobs.checks.periods import are_apart, periods

OTHER_THINGS = [
    ("30% more people can afford insulin.", "Insulin is 30% cheaper than last year.", "en"),
    ("Orders rose 12%.", "Prices fell by 12%, and orders reached a record.", "en"),
    ("25 % mehr Haushalte kaufen Wärmepumpen.", "Wärmepumpen sind 25 % billiger als im Vorjahr.", "de"),
    ("15 % de foyers en plus achètent des vélos.", "Les vélos sont 15 % moins chers.", "fr"),
    ("The ferry is 20 percent faster.", "The crossing takes 20 percent less time.", "en"),
    ("Cheaper tickets lifted sales in Bergen.", "Ticket prices in Bergen fell.", "en"),
    ("मेले में 30 प्रतिशत से ज़्यादा लोग बाहर से आए।", "इस साल मेले में 30 प्रतिशत कम लोग आए और दुकानदार निराश थे।", "hi"),
    ("भीड़ बढ़ी। 30 प्रतिशत लोग दिल्ली से आए।", "बिक्री घटी। 30 प्रतिशत लोग दिल्ली से आए।", "hi"),
    ("Revenue rose in the second quarter.", "Revenue fell in the first quarter. It recovered in the second.", "en"),
    ("Revenue of the group rose in Q2.", "In Q1, revenue of the group fell.", "en"),
    (
        "Der Umsatz des Konzerns stieg im zweiten Quartal.",
        "Der Umsatz des Konzerns fiel im ersten Quartal, im zweiten erholte er sich.",
        "de",
    ),
    ("第二季度公司销售额上升。", "第一季度公司销售额下降。第二季度好转。", "zh"),
    ("Sales of cargo bikes in Oslo rose in May.", "Sales of cargo bikes in Oslo fell in April.", "en"),
    ("The club did not lose any match in 2023.", "The club lost a match in 2022, and the trainer left in 2024.", "en"),
    (
        "Orders grew 50% this year.",
        "Staff fell from 400 to 200 this year, while the number of orders grew by half.",
        "en",
    ),
    (
        "Sales in Europe rose by 100 million.",
        "Sales in Asia fell from 500 million to 400 million, while sales in Europe rose by the same amount.",
        "en",
    ),
    ("Nurses made up 45% of the staff.", "The staff fell by 45% in a year.", "en"),
    ("The founders sold the start-up 340 machines.", "The number of machines fell by 340.", "en"),
    ("They wrote down 340 names.", "The number of names rose by 340.", "en"),
]
THE_SAME_THING = [
    ("The staff, down 45%, is smaller.", "The staff rose by 45% in a year.", "en"),
    ("Uptake is up 18%.", "Uptake fell by 18%.", "en"),
    ("Insulin is 30% dearer than last year.", "Insulin is 30% cheaper than last year.", "en"),
    ("For insulin, one pays 30% more.", "Insulin is 30% cheaper than last year.", "en"),
    ("Orders fell 12%.", "Orders rose by 12%, and prices reached a record.", "en"),
    ("The ferry is 20 percent slower.", "The ferry is 20 percent faster than the old one.", "en"),
    ("New albums cost $35 or less.", "New albums are priced at $35 or more.", "en"),
    ("第一季度公司销售额上升。", "第一季度公司销售额下降。第二季度好转。", "zh"),
    ("मेले में 30 प्रतिशत ज़्यादा लोग आए।", "इस साल मेले में 30 प्रतिशत कम लोग आए और दुकानदार निराश थे।", "hi"),
]


@pytest.mark.parametrize(("text", "source", "locale"), OTHER_THINGS)
def test_directions_of_different_things_are_no_contradiction(text: str, source: str, locale: str) -> None:
    assert checks.contradiction(text, source, locale) is None


@pytest.mark.parametrize(("text", "source", "locale"), THE_SAME_THING)
def test_opposite_directions_of_one_thing_are_a_contradiction(text: str, source: str, locale: str) -> None:
    finding = checks.contradiction(text, source, locale)
    assert finding
    assert finding.reason is RejectionReason.CONTRADICTS_SOURCE


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("In the second quarter of 2025", {"quarter": {2}, "year": {2025}}),
        ("im ersten Halbjahr", {"half": {1}}),
        ("au troisième trimestre", {"quarter": {3}}),
        ("na segunda-feira", {}),
        ("во втором квартале", {"quarter": {2}}),
        ("2024年第三四半期", {"quarter": {3}, "year": {2024}}),
        ("1분기", {"quarter": {1}}),
        ("في الربع الثاني", {"quarter": {2}}),
        ("दूसरी तिमाही में", {"quarter": {2}}),
        ("Q1 and Q4", {"quarter": {1, 4}}),
        ("12,024 seats, 2,019.5 km, 1990%", {}),
    ],
)
def test_periods(text: str, found: dict[str, set[int]]) -> None:
    assert periods(text) == found


def test_periods_that_are_apart() -> None:
    assert are_apart(periods("in May 2024"), periods("in April 2024"))
    assert not are_apart(periods("in the first and the second quarter"), periods("in Q2"))
    assert not are_apart(periods("in May"), periods("in the third quarter"))
