"""Texts that are finished, and texts that are cut off."""

from __future__ import annotations

import pytest

from thothy_ai.jobs import RejectionReason, checks

FINISHED = [
    ("It ends here.", "en"),
    ("Does it end?", "en"),
    ("“It ends here.”", "en"),
    ('"It ends here."', "en"),
    ("She said: “It ends here.”", "en"),
    ("It's a 27\" screen.", "en"),
    ("It costs 2.60 euros.", "en"),
    ("They sell them in the U.S.", "en"),
    ("The screens of Acme Inc.", "en"),
    ("Wait for it…", "en"),
    ("Wait for it...", "en"),
    ("Two wheels. One box. No second car.", "en"),
    ("More bikes than cars? Yes. #cargobike #Freiburg", "en"),
    ("More bikes than cars! 🚲", "en"),
    ("Read it at length. https://example.com/cargo-bikes?ref=1", "en"),
    ("It grew (by half).", "en"),
    ("It grew. (By half.)", "en"),
    ("It is over. (Really.)", "en"),
    ("Sales doubled.[^1]", "en"),
    ("Sales doubled. [2]", "en"),
    ("**Sales doubled.**", "en"),
    ("# Bikes\n\n- one\n- two", "en"),
    ("Sie fragte: „Passt das?“", "de"),
    ("Sie sagte: „Das passt.“", "de"),
    ("Sie sagte: »Das passt.«", "de"),
    ("Elle a dit : « Ça marche. »", "fr"),
    ("Powiedziała: „Dobrze.”", "pl"),
    ("Hon sa: ”Bra.”", "sv"),
    ("¿Quién lo paga? ¡Todos!", "es"),
    ("終わりです。", "ja"),
    ("「終わりです。」", "ja"),
    ("彼は「終わり」と言った。", "ja"),
    ("他说：“结束了。”", "zh"),
    ("他说：「結束了！」", "zh-TW"),
    ("결국 끝났습니다.", "ko"),
    ("यह अच्छा है।", "hi"),
    ("هل هذا صحيح؟", "ar"),
    ("یہ ٹھیک ہے۔", "ur"),
    ("Τι είναι αυτό;", "el"),
    ("ยอดขายจักรยานเพิ่มขึ้นมาก", "th"),
    ("Она сказала: «Хорошо».", "ru"),
    ("It happens, etc.", "en"),
    ("Das ist das, was zählt.", "de"),
    ("It is what they are used to.", "en"),
]
CUT_OFF = [
    ("It ends in a", "en"),
    ("The council says that it will: Antwerp", "en"),
    ("Now open: the", "en"),
    ("It ends, ", "en"),
    ("The last word is that of Dr.", "en"),
    ("The shops sold their bikes to the.", "en"),
    ("Many shops, and their.", "en"),
    ("Das gilt z. B.", "de"),
    ("Die Händler verkaufen ihre Räder und.", "de"),
    ("It ends here.”", "en"),
    ("“It ends here.", "en"),
    ("Sie sagte: „Das passt.", "de"),
    ("It grew (by half and more.", "en"),
    ("There are three reasons:", "en"),
    ("He has read the whole text —", "en"),
    ("発酵食品の人気が高まっ", "ja"),
    ("他说：“结束了。", "zh"),
    ("판매가 늘어나고", "ko"),
    ("", "en"),
    ("#only #tags", "en"),
]


@pytest.mark.parametrize(
    "text",
    [
        "Great beer today. Ask @brewer",
        "Save 20%",
        "Jetzt sparen: 20 %",
        "Now open: Antwerp",
        "Good news. Coming soon: Café Noir",
        "Сейчас открыто: Антверпен",
    ],
)
def test_a_mention_or_a_percentage_may_end_a_post(text: str) -> None:
    assert checks.unfinished("text", text, "en", is_post=True) is None


@pytest.mark.parametrize(
    ("text", "locale"),
    [
        ("The council says: Antwerp", "en"),
        ("Prices rose. The reason: Germany", "en"),
        ("The mayor of: Antwerp", "en"),
        ("The result: The", "en"),
        ("Now open: The New", "en"),
        ("Why it matters: In", "en"),
        ("But she warns: If", "en"),
        ("Read more: How The", "en"),
        ("The takeaway: People", "en"),
        ("Das Ziel: Der Ausbau", "de"),
        ("Der Grund: Die", "de"),
        ("Ergebnis: Das Dorf", "de"),
        ("La raison: El Ayuntamiento", "fr"),
    ],
)
def test_an_output_cut_off_behind_a_label_ends_no_post(text: str, locale: str) -> None:
    assert checks.unfinished("text", text, locale, is_post=True)


def test_only_a_post_ends_with_a_label_and_a_name() -> None:
    assert checks.unfinished("text", "Now open: Antwerp", "en")


@pytest.mark.parametrize(("text", "locale"), FINISHED)
def test_finished(text: str, locale: str) -> None:
    assert checks.unfinished("text", text, locale) is None


@pytest.mark.parametrize(("text", "locale"), CUT_OFF)
def test_cut_off(text: str, locale: str) -> None:
    finding = checks.unfinished("text", text, locale)
    assert finding
    assert finding.reason is RejectionReason.TRUNCATED
