"""Loops, and good texts that repeat a little."""

from __future__ import annotations

import pytest

from thothy_ai.jobs import RejectionReason, checks

LOOPS = [
    ("very very very very good", "en"),
    ("So good!!!!!", "en"),
    ("Aaaaaaah, what a day it was.", "en"),
    ("The bar is changing its routine. It is so. The bar is changing its routine.", "en"),
    ("In the heart of the city, in the heart of the market, in the heart of the town.", "en"),
    ("Der Markt wächst sehr schnell. Der Markt wächst sehr schnell.", "de"),
    ("C'est la vie de tous. C'est la vie de tous.", "fr"),
    ("我们的市场增长很快，我们的市场增长很快，我们的市场增长很快。", "zh"),
    ("市場は急速に成長しています。市場は急速に成長しています。", "ja"),
    ("Рынок растёт очень быстро. Рынок растёт очень быстро.", "ru"),
    ("the cat and the dog and the cat and the dog and the cat and the dog", "en"),
    ("ตลาดเติบโตเร็ว ตลาดเติบโตเร็ว ตลาดเติบโตเร็ว ตลาดเติบโตเร็ว", "th"),
]
GOOD = [
    ("That that is, is.", "en"),
    ("Yes. No. Yes. No.", "en"),
    ("1,000,000 and 100000 more", "en"),
    ("", "en"),
    ("Wait...... what?", "en"),
    ("等等……什么？", "zh"),
    ("| a | b |\n|-----|-----|\n| 1 | 1 |", "en"),
    ("More bikes. More boxes. More space.", "en"),
    (
        "Cargo bikes are replacing the second car. Most families ask whether two children and a crate of water fit.",
        "en",
    ),
    ("Mehr Rad, mehr Raum, mehr Ruhe.", "de"),
    ("発酵食品の人気が高まっています。若者の間で人気です。", "ja"),
    ("www.example.com", "en"),
]
REPORT = (
    "The market for electric cars in Norway grew again last year. Dealers say that the market for electric cars now "
    "reaches the small towns, where charging was rare. The ministry expects subsidies to end in two years, and "
    "importers prepare for a slower spring. Buyers compare leases rather than prices, and banks have noticed. A dealer "
    "in Bergen sold more vans than family cars for the first time, most of them to craftsmen. Nobody expects the "
    "market for electric cars to shrink, but the growth of the past years will not come back before the decade ends."
)


@pytest.mark.parametrize(("text", "locale"), LOOPS)
def test_loops(text: str, locale: str) -> None:
    finding = checks.repetition(text, locale)
    assert finding
    assert finding.reason is RejectionReason.REPETITION


@pytest.mark.parametrize(("text", "locale"), [*GOOD, (REPORT, "en")])
def test_good_texts(text: str, locale: str) -> None:
    assert checks.repetition(text, locale) is None
