"""Length in words, and in proportion to an original."""

from __future__ import annotations

import pytest

from tests.unit.jobs.checks.reasons import reason
from thothy_ai.jobs import RejectionReason, checks

SHORT, LONG = RejectionReason.TOO_SHORT, RejectionReason.TOO_LONG


@pytest.mark.parametrize(
    ("text", "found"),
    [("Cabbage waits.", None), ("7", None), ("水", None), ("…!?", RejectionReason.EMPTY), ("", RejectionReason.EMPTY)],
)
def test_empty(text: str, found: RejectionReason | None) -> None:
    assert reason(checks.empty("text", text)) is found


@pytest.mark.parametrize(
    ("text", "locale", "found"),
    [
        ("one two three four five", "en", None),
        ("l'été d'avant était très beau", "fr", None),
        ("one two three", "en", SHORT),
        (" ".join(["word"] * 12), "en", LONG),
        ("发酵食品越来越受欢迎。", "zh", None),
        ("发酵食品。", "zh", SHORT),
        ("発酵食品の人気が高まっています。", "ja", None),
        ("発酵食品", "ja", SHORT),
        ("발효 식품의 인기가 높아지고", "ko", None),
        ("ยอดขายจักรยานเพิ่มขึ้นมาก", "th", None),
    ],
)
def test_length(text: str, locale: str, found: RejectionReason | None) -> None:
    assert reason(checks.length("text", text, locale, 4, 10)) is found


@pytest.mark.parametrize(
    ("text", "original", "found"),
    [
        ("Einstellungen gespeichert", "Settings saved", None),
        ("Fermented foods are more and more popular among the young.", "发酵食品越来越受年轻人欢迎。", None),
        ("发酵食品越来越受年轻人欢迎。", "Fermented foods are more and more popular among the young.", None),
        (
            "発酵食品の人気が若者の間で高まっています。",
            "Fermented foods are more and more popular among the young.",
            None,
        ),
        ("Fermented foods are increasingly popular.", "발효 식품이 점점 더 인기를 얻고 있습니다.", None),
        ("x" * 100, "y" * 100, None),
        ("x" * 20, "y" * 100, SHORT),
        ("x" * 300, "y" * 100, LONG),
        ("发酵。", "Fermented foods are more and more popular among the young, and not only among them.", SHORT),
        ("", "y" * 60, SHORT),
    ],
)
def test_proportion(text: str, original: str, found: RejectionReason | None) -> None:
    assert reason(checks.proportion("text", text, original)) is found
