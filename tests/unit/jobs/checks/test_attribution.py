"""Figures and roles that a text exchanges."""

from __future__ import annotations

import pytest

from tests.unit.jobs.checks.reasons import reason
from thothy_ai.jobs import RejectionReason, checks

DAIRIES = (
    "Before, Green Hollow drove 410 miles a day, Stowe Creamery 265 miles and Baxter Farms 325. In 2023 the"
    " nurses made 5,270 visits; in 2024 it was 7,905. Green Hollow sold Baxter Farms its cold store in March."
)
FOREST = "Летом 2023 года сгорело 130 гектаров, летом 2024-го — 52."
MARKET = "La mairie loue l'étal 11 euros par jour, contre 14 à Lorient. La rénovation a duré 14 mois."
TEA = "福建的茶厂去年采了很多茶。春茶每公斤卖160元，秋茶卖96元，懂茶的人都愿意等春天。"


@pytest.mark.parametrize(
    ("text", "source", "locale"),
    [
        ("Stowe Creamery used to drive 410 miles a day, Green Hollow only 265 miles.", DAIRIES, "en"),
        ("In 2024 the nurses made 5,270 visits, in 2023 already 7,905.", DAIRIES, "en"),
        ("春茶每公斤卖96元，秋茶卖160元。", TEA, "zh"),
        ("Baxter Farms drove 410 miles a day, Green Hollow only 325.", DAIRIES, "en"),
        ("Летом 2023 года сгорело 52 гектара, летом 2024-го — 130.", FOREST, "ru"),
        ("L'étal coûte 14 euros par jour à Quimperlé, 11 à Lorient.", MARKET, "fr"),
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


RUNNERS = "Die Stadt Bremen zahlt 95.000 Euro für den Boden. Die Sparkasse gibt 140.000 Euro für den Aufstieg."


def test_figures_of_two_sentences_that_a_translation_exchanges_contradict() -> None:
    right = "The city of Bremen pays €95,000 for the floor. The savings bank gives €140,000 for the promotion."
    wrong = "The city of Bremen pays €140,000 for the floor. The savings bank gives €95,000 for the promotion."
    assert checks.contradiction(right, RUNNERS, "en", "de") is None
    assert reason(checks.contradiction(wrong, RUNNERS, "en", "de")) is RejectionReason.CONTRADICTS_SOURCE


def test_a_price_that_a_translation_gives_as_a_share_contradicts() -> None:
    original = "The price of coffee rose 18 percent and reached 43 dollars."
    assert checks.contradiction("Цена кофе выросла на 18 % и достигла 43 долларов.", original, "ru", "en") is None
    found = checks.contradiction("Цена кофе выросла на 43 % и достигла 18 долларов.", original, "ru", "en")
    assert reason(found) is RejectionReason.CONTRADICTS_SOURCE


def test_each_count_with_its_own_word_is_not_exchanged() -> None:
    source = "The project covers some 260 acres of palms, which 480 farmers own."
    assert checks.contradiction("The project covers 480 farmers and some 260 acres.", source, "en") is None


HOTELS = "A room cost 140 euros. Hotels were 78 percent full."


def test_sentences_in_another_order_are_not_exchanged() -> None:
    text = "Die Hotels waren zu 78 Prozent belegt. Ein Zimmer kostete 140 Euro."
    assert checks.contradiction(text, HOTELS, "de", "en") is None


def test_a_figure_that_stays_in_its_sentence_tells_that_others_are_exchanged() -> None:
    original = "In 52 hotels a room cost 140 euros. The 31 hostels took 45 euros."
    right = "In 52 Hotels kostete ein Zimmer 140 Euro. Die 31 Herbergen nahmen 45 Euro."
    wrong = "In 52 Hotels kostete ein Zimmer 45 Euro. Die 31 Herbergen nahmen 140 Euro."
    assert checks.contradiction(right, original, "de", "en") is None
    assert reason(checks.contradiction(wrong, original, "de", "en")) is RejectionReason.CONTRADICTS_SOURCE


def test_a_text_in_another_language_than_its_source_need_not_keep_its_order() -> None:
    text = "Ulm nahm 45 Euro. In 52 Hotels kostete ein Zimmer 140 Euro."
    assert checks.contradiction(text, "In 52 hotels a room cost 45 euros. Ulm took 140 euros.", "de") is None
