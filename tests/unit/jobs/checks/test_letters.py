"""Phrases in another script than the locale's and the request's."""

from __future__ import annotations

import pytest

from tests.unit.jobs.checks.reasons import reason
from tests.unit.jobs.checks.test_languages import TEXTS
from thothy_ai.jobs import RejectionReason, checks

PHRASES = [
    "通过新的产品",
    "大幅に増加した",
    "크게 늘리고 있습니다",
    "значительно",
    "благодаря новым продуктам",
    "بفضل منتجاتها",
    "विकास तेज़ी से हो रहा है",
    "เพิ่มขึ้นอย่างมาก",
    "σημαντικά",
]


@pytest.mark.parametrize("foreign", PHRASES)
@pytest.mark.parametrize("locale", ["de", "en", "fr", "pl", "tr"])
def test_a_sentence_that_changes_to_another_script_is_found(locale: str, foreign: str) -> None:
    first, second, *rest = TEXTS[locale].split()
    text = f"{first} {second} {foreign} {' '.join(rest)}"
    found = checks.foreign_letters(text, TEXTS[locale], locale)
    assert found is not None
    assert found.reason is RejectionReason.WRONG_LANGUAGE
    assert found.span is not None
    assert text[slice(*found.span)] in foreign  # a vowel sign at its end is no letter
    for given in (foreign, f"… {foreign} …"):
        assert checks.foreign_letters(text, given, locale) is None


@pytest.mark.parametrize("locale", TEXTS)
def test_texts_in_their_own_letters_pass(locale: str) -> None:
    assert checks.foreign_letters(TEXTS[locale], "", locale) is None


@pytest.mark.parametrize(
    ("locale", "foreign", "wanted"),
    [
        ("ru", "通过新的产品", True), ("ka", "通过新的产品", True), ("ja", "значительно", True),
        ("zh", "بفضل منتجاتها", True), ("ko", "значительно", True), ("zh-TW", "大幅に増加した", False),
        ("ru", "significantly", False), ("sr-Latn", "значительно", True), ("sr", "значительно", False),
    ],
)  # fmt: skip
def test_other_locales(locale: str, foreign: str, *, wanted: bool) -> None:
    assert (reason(checks.foreign_letters(f"1 {foreign} 2", "", locale)) is not None) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "The agency 中国 (中华人民共和国国家发展和改革委员会) said so.",
        "The agency [国家发展和改革委员会] said so, as did the other one （国家发展和改革委员会）.",
        "She said “欢迎来到我们美丽的城市旅游” and »欢迎来到我们美丽的城市旅游« and «Слава труду, слава народу».",
        'A sign says "Слава труду, слава народу" and 「ありがとうございました」.',
        "Angles α, β, γ, δ, ε, ζ, η, θ, ι, κ and λ: ∑ αβγ ≤ π², ΔE, 5 µm, Ω",
        "[ˈprɒpə ˈneɪm]; ˈprɒpə ˈneɪm; 𝐛𝐨𝐥𝐝 𝑖𝑡𝑎𝑙𝑖𝑐; ＦＵＬＬ ＷＩＤＴＨ; ™ ℃ №",
        "🚲🚲🚲 🇩🇪 ✓ → • ½ ² ₂",
        "Xiaomi (小米) and 小米 and Сбер.",
    ],
)
def test_what_may_be_in_any_letters(text: str) -> None:
    assert checks.foreign_letters(text, "", "en") is None


def test_names_of_the_source_pass_with_a_word_that_joins_them() -> None:
    source = "Встретились Владимир Зеленский, Дмитрий Медведев."
    assert checks.foreign_letters("Владимир Зеленский и Дмитрий Медведев met.", source, "en") is None
