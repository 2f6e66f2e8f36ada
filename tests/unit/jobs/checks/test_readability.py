"""Whether a text is as easy to read as its brief asks for."""

from __future__ import annotations

import pytest

from thothy_ai.jobs import checks
from thothy_ai.jobs.api.verdict import RejectionReason

EASY = {
    "en": "The bakers go to bed. The dough stays in the cold room. It grows all night. In the morning they form it. ",
    "de": "Die Bäcker gehen ins Bett. Der Teig ruht im Keller. Er wächst die ganze Nacht. Am Morgen backen sie ihn. ",
    "fr": "Les boulangers vont au lit. La pâte reste à la cave. Elle lève toute la nuit. Le matin, on la cuit vite. ",
}
HARD = {
    "en": (
        "Notwithstanding considerable administrative complications, municipal infrastructure departments increasingly "
        "prioritize comprehensive sustainability legislation addressing environmental responsibilities, institutional "
        "accountability and intergenerational consequences throughout neighbourhoods, whose representatives consider "
        "participation procedures insufficiently transparent."
    ),
    "de": (
        "Ungeachtet erheblicher verwaltungsrechtlicher Schwierigkeiten priorisieren kommunale Infrastrukturbehörden "
        "zunehmend umfassende Nachhaltigkeitsgesetzgebungen hinsichtlich umweltpolitischer Verantwortlichkeiten, "
        "institutioneller Rechenschaftspflichten sowie generationenübergreifender Auswirkungen innerhalb sämtlicher "
        "großstädtischer Wohngebiete einschließlich benachbarter Verwaltungsgemeinschaften, deren Zuständigkeiten "
        "überwiegend unübersichtlich erscheinen."
    ),
    "fr": (
        "Nonobstant d'importantes complications administratives, les départements municipaux d'infrastructures "
        "privilégient progressivement des législations environnementales contraignantes concernant les "
        "responsabilités institutionnelles, notamment intergénérationnelles, qu'entraînent les aménagements "
        "métropolitains contemporains."
    ),
}


@pytest.mark.parametrize("locale", EASY)
def test_long_words_and_sentences_are_too_hard_for_any_but_experts(locale: str) -> None:
    for level in ("easy", "general"):
        found = checks.too_hard(HARD[locale], level, locale)
        assert found is not None
        assert found.reason is RejectionReason.READING_LEVEL
        assert checks.too_hard(EASY[locale] * 2, level, locale) is None
    assert checks.too_hard(HARD[locale], "expert", locale) is None
    assert checks.too_hard(HARD[locale], None, locale) is None


def test_a_newspaper_is_too_hard_for_children_only() -> None:
    text = (
        "The harbour office closed two of its four cranes last winter because nobody had inspected their cables since "
        "2019. Repairs will take until the end of summer, according to the harbour's director, and delay larger ships."
    )
    assert checks.too_hard(text, "general", "en-GB") is None
    assert checks.too_hard(text, "easy", "en-GB") is not None


def test_short_texts_and_languages_without_a_formula_have_no_level() -> None:
    assert checks.too_hard("Municipal infrastructure departments prioritize legislation.", "easy", "en") is None
    assert checks.too_hard(HARD["en"], "easy", "tr") is None
