"""Translations that stay, in part, what they were."""

from __future__ import annotations

import pytest

from thothy_ai.jobs import RejectionReason, checks

ENGLISH = (
    "Cargo bikes are replacing the second car. Most families ask whether two children and a crate of water fit. "
    "“The Long Way to a Small Angry Planet” is a novel. Run `make demo all of it now` first. "
    "Berlin, Paris, New York, Mexico City, London and Rome."
)


@pytest.mark.parametrize(
    ("text", "locale"),
    [
        (ENGLISH, "de"),
        (ENGLISH.replace("replacing", "replaced"), "de"),
        ("Lastenräder ersetzen das Auto. Most families ask whether two children and a crate of water fit.", "de"),
        ("Lastenräder: most families ask whether two children and a crate fit hinein.", "de"),
        ("货运自行车正在取代第二辆车。Most families ask whether two children and a crate of water fit.", "zh"),
    ],
)
def test_untranslated(text: str, locale: str) -> None:
    finding = checks.untranslated(text, ENGLISH, locale)
    assert finding
    assert finding.reason is RejectionReason.UNTRANSLATED


@pytest.mark.parametrize(
    ("text", "original", "locale"),
    [
        ("Lastenräder ersetzen das Auto. Die meisten Familien fragen, ob zwei Kinder hineinpassen.", ENGLISH, "de"),
        (
            "„The Long Way to a Small Angry Planet“ ist ein Roman. Zuerst `make demo all of it now` ausführen.",
            ENGLISH,
            "de",
        ),
        ("Berlin, Paris, New York, Mexico City, London and Rome.", ENGLISH, "de"),
        ("Radhaus Sonne", "Radhaus Sonne", "de"),
        ("OK", "OK", "de"),
        ("Thothy AI", "Thothy AI", "ja"),
        ("货运自行车正在取代第二辆车。", ENGLISH, "zh"),
        ("新能源汽車銷量上升。", "新能源汽车销量上升。", "zh-TW"),
    ],
)
def test_translated(text: str, original: str, locale: str) -> None:
    assert checks.untranslated(text, original, locale) is None
