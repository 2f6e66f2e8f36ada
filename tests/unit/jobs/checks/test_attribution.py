"""Figures and roles that a text exchanges."""

from __future__ import annotations

import pytest

from tests.unit.jobs.checks.reasons import reason
from thothy_ai.jobs import RejectionReason, checks

DAIRIES = (
    "Before, Green Hollow drove 410 miles a day, Stowe Creamery 265 miles and Baxter Farms 325. In 2023 the"
    " nurses made 5,270 visits; in 2024 it was 7,905. Green Hollow sold Baxter Farms its cold store in March."
)
TEA = "福建的茶厂去年采了很多茶。春茶每公斤卖160元，秋茶卖96元，懂茶的人都愿意等春天。"


@pytest.mark.parametrize(
    ("text", "source", "locale"),
    [
        ("Stowe Creamery used to drive 410 miles a day, Green Hollow only 265 miles.", DAIRIES, "en"),
        ("In 2024 the nurses made 5,270 visits, in 2023 already 7,905.", DAIRIES, "en"),
        ("春茶每公斤卖96元，秋茶卖160元。", TEA, "zh"),
    ],
)
def test_two_figures_that_are_exchanged_contradict(text: str, source: str, locale: str) -> None:
    assert reason(checks.contradiction(text, source, locale)) is RejectionReason.CONTRADICTS_SOURCE


@pytest.mark.parametrize(
    ("text", "source", "locale"),
    [
        ("Stowe Creamery used to drive 265 miles a day, Green Hollow as many as 410.", DAIRIES, "en"),
        ("Visits rose from 5,270 to 7,905 within a year.", DAIRIES, "en"),
        ("秋茶卖96元，春茶每公斤卖160元。", TEA, "zh"),
    ],
)
def test_figures_in_their_places_do_not(text: str, source: str, locale: str) -> None:
    assert checks.contradiction(text, source, locale) is None


def test_names_that_change_places_around_a_verb_contradict() -> None:
    found = checks.contradiction("In March, Baxter Farms sold Green Hollow its cold store.", DAIRIES, "en")
    assert reason(found) is RejectionReason.CONTRADICTS_SOURCE


@pytest.mark.parametrize(
    "text",
    [
        "Green Hollow sold Baxter Farms its cold store.",
        "Baxter Farms was sold the cold store by Green Hollow.",
        "Baxter Farms, to which Green Hollow sold its cold store, drives less.",
    ],
)
def test_a_passive_and_another_verb_do_not(text: str) -> None:
    assert checks.contradiction(text, DAIRIES, "en") is None


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("On Sunday Chelsea play Arsenal.", "Arsenal play Chelsea on Sunday."),
        ("Peter Holm married Maria Lund in May.", "Maria Lund married Peter Holm in May."),
    ],
)
def test_a_verb_that_means_the_same_in_both_directions_does_not(text: str, source: str) -> None:
    assert checks.contradiction(text, source, "en") is None
