"""Glossaries, terms that stay, banned phrases."""

from __future__ import annotations

import pytest

from tests.unit.jobs.checks.reasons import reason
from thothy_ai.jobs import RejectionReason, checks
from thothy_ai.jobs.text.phrases import contradicts

TERMS = {
    "cargo bike": "Lastenrad",
    "bike": "Fahrrad",
    "AI": "KI",
    "second car": "Zweitwagen",
    "city council": "Stadtrat",
}


@pytest.mark.parametrize(
    ("text", "original"),
    [
        ("Das Lastenrad ersetzt den Zweitwagen.", "The cargo bike replaces the second car."),
        ("Lastenräder ersetzen Zweitwagen.", "Cargo bikes replace second cars."),
        ("Der Lastenradhandel wächst.", "The cargo bike trade grows."),
        ("Des Stadtrats Räder: Fahrräder.", "The city council's bikes."),
        ("Die KI hilft.", "AI helps."),
        ("Sie sagte nichts.", "She said nothing."),
        ("KI-gestützte Fahrräder", "AI-supported bikes"),
        ("Nichts davon.", "None of that."),
    ],
)
def test_a_glossary_that_is_honoured(text: str, original: str) -> None:
    assert checks.glossary(text, original, TERMS, []) is None


@pytest.mark.parametrize(
    ("text", "original"),
    [
        ("Das Cargobike ersetzt den Zweitwagen.", "The cargo bike replaces the second car."),
        ("Das Lastenrad ersetzt das zweite Auto.", "The cargo bike replaces the second car."),
        ("Das Lastenrad und das Rad.", "The cargo bike and the bike."),
        ("Künstliche Intelligenz hilft.", "AI helps."),
        ("Die Stadtverwaltung zahlt.", "The city council pays."),
    ],
)
def test_a_glossary_that_is_ignored(text: str, original: str) -> None:
    assert reason(checks.glossary(text, original, TERMS, [])) is RejectionReason.GLOSSARY


@pytest.mark.parametrize(
    ("text", "original", "terms", "found"),
    [
        ("La bicicletta da carico cresce.", "The cargo bike grows.", {"cargo bike": "bicicletta da carico"}, None),
        ("Le biciclette da carico crescono.", "Cargo bikes grow.", {"cargo bike": "bicicletta da carico"}, None),
        (
            "Le cargobike crescono.",
            "Cargo bikes grow.",
            {"cargo bike": "bicicletta da carico"},
            RejectionReason.GLOSSARY,
        ),
        ("Продажи грузовых велосипедов растут.", "Cargo bike sales grow.", {"cargo bike": "грузовой велосипед"}, None),
        (
            "Продажи карго-байков растут.",
            "Cargo bike sales grow.",
            {"cargo bike": "грузовой велосипед"},
            RejectionReason.GLOSSARY,
        ),
        ("货运自行车越来越多。", "More cargo bikes.", {"cargo bike": "货运自行车"}, None),
        ("载货单车越来越多。", "More cargo bikes.", {"cargo bike": "货运自行车"}, RejectionReason.GLOSSARY),
        ("More cargo bikes.", "货运自行车越来越多。", {"货运自行车": "cargo bike"}, None),
        ("Tavarapyörien myynti kasvaa.", "Cargo bike sales grow.", {"cargo bike": "tavarapyörä"}, None),
        ("Sprzedaż rowerów towarowych rośnie.", "Cargo bike sales grow.", {"cargo bike": "rower towarowy"}, None),
    ],
)
def test_glossaries_of_other_languages(
    text: str, original: str, terms: dict[str, str], found: RejectionReason | None
) -> None:
    assert reason(checks.glossary(text, original, terms, [])) is found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Radhaus Sonne verkauft Thothys.", None),
        ("Radhaus sonne verkauft.", RejectionReason.GLOSSARY),
        ("Das Radhaus verkauft.", RejectionReason.GLOSSARY),
        ("Radhaus Sonneを販売しています。", None),
    ],
)
def test_terms_that_stay(text: str, found: RejectionReason | None) -> None:
    assert reason(checks.glossary(text, "Radhaus Sonne sells.", {"Sonne": "sun"}, ["Radhaus Sonne", "Thothy"])) is found


@pytest.mark.parametrize(
    ("text", "phrase", "found"),
    [
        ("A real Game Changer.", "game changer", True),
        ("A real game\u00adchanger, a game\n changer.", "game changer", True),
        ("game\u200b changer", "game changer", True),
        ("It’s over.", "it's", True),
        ("ＧＡＭＥ changer", "game changer", True),
        ("The class is full.", "ass", False),
        ("Assessment", "ass", False),
        ("100 % natural!", "100 % natural", True),
        ("C++ is fast.", "C++", True),
        ("这是一个颠覆性的产品。", "颠覆性", True),
        ("革命的な製品です。", "革命的", True),
        ("ผลิตภัณฑ์ปฏิวัติวงการ", "ปฏิวัติ", True),
        ("혁신적인 제품", "혁신적인", True),
        ("혁신적인들", "혁신", False),
        ("منتج ثوري جديد", "ثوري", True),
        ("Der Bahnhof ist neu.", "Bahn", False),
        ("Nothing.", "", False),
        ("Nothing.", "…", False),
    ],
)
def test_banned(text: str, phrase: str, found: bool) -> None:
    finding = checks.banned(text, ["unrelated words", phrase], "en")
    assert (reason(finding) is RejectionReason.BANNED_PHRASE) is found


@pytest.mark.parametrize(
    ("locale", "phrase", "forms", "others"),
    [
        ("en-GB", "content", "contents content's", "context contest continent"),
        ("en", "market", "markets marketed", "marked markdown"),
        ("en", "product", "products", "produce productive production"),
        ("en", "contract", "contracts contracted contracting", "contrast contractor"),
        ("en", "passive", "passives", "passion passively"),
        ("en", "general", "generals", "generous generation generally"),
        ("en", "artisanal", "artisanal", "artisans artisan"),
        ("en", "police", "polices policed policing", "policies policy"),
        ("en", "synergy", "synergies synergy’s", "synergetic synergist"),
        ("de-AT", "revolutionär", "revolutionäre revolutionärer revolutionären", "Revolution Revolutionierung"),
        ("de", "Handwerk", "Handwerks Handwerke", "Handwerker handwerklich"),
        ("de", "Lehre", "Lehren", "Lehrer Lehrling"),
        ("fr", "général", "générale générales généraux", "généreux génération"),
        ("es", "puerto", "puertos", "puerta puertas"),
        ("it", "prezzo", "prezzi", "prezioso"),
        ("sv", "politik", "politiken", "politiker"),
        ("nb", "musikk", "musikken", "musikker"),
        ("ru", "уникальный", "уникального уникальная", "уникальность"),
        ("pl", "prawdziwa rewolucja", "", "prawdziwa rewolucyjność"),
        ("tr", "fiyat", "fiyat fiyatlar fiyatları", "fiyonk"),
        ("en", "beer", "beers beer’s", "beech"),
        ("en", "new", "", "news newer"),
        ("en", "tip", "tips tip’s", "tippler tipped"),
        ("en", "bus", "buses", "busy business"),
        ("en", "car", "cars", "cares"),
        ("de", "Bier", "Biere Bieres Bieren", "Bierzelt biere"),
        ("de", "Rat", "Rates", "Rate Raten"),
        ("de", "Reis", "", "Reise Reisen"),
        ("de", "Reich", "Reiche", "reichen"),
        ("de", "mein", "", "meinen meint"),
        ("fr", "cour", "", "cours"),
        ("fr", "jeu", "jeux", "jeune"),
        ("es", "bar", "bares", "barra"),
    ],
)
def test_a_banned_phrase_is_found_in_its_own_forms_only(locale: str, phrase: str, forms: str, others: str) -> None:
    assert [form for form in forms.split() if checks.banned(f"X {form}.", [phrase], locale) is None] == []
    assert checks.banned(f"X {others}.", [phrase], locale) is None


@pytest.mark.parametrize(
    ("locale", "phrase", "text"),
    [
        ("en", "good", "Consumer goods prices rose."),
        ("en", "arm", "Arms exports rose by 4 percent."),
        ("en", "meet", "The meeting lasted three hours."),
        ("en", "fast", "Ramadan: how fasting changes shops."),
        ("en", "last", "A lasting peace."),
        ("en", "can", "Canned beer sells."),
        ("en", "plan", "Urban planning changes."),
        ("en", "use", "People who used to drive now cycle."),
        ("de", "Fest", "Eine feste Zusage, und feste Preise."),
        ("de", "Fest", "Feste Zusagen helfen."),
        ("de", "Arm", "Arme Familien zahlen mehr."),
        ("de", "mein", "Viele meinen, es reicht."),
        ("de", "Start", "Die Flüge starten später."),
        ("es", "este", "En esta ciudad."),
        ("fr", "cour", "Au cours de la fête."),
    ],
)
def test_short_words_are_not_found_in_other_words(locale: str, phrase: str, text: str) -> None:
    assert checks.banned(text, [phrase], locale) is None


@pytest.mark.parametrize(
    ("locale", "wanted", "avoided"),
    [
        ("en", "goods", "good"),
        ("en", "newer models", "new"),
        ("en", "meeting", "meet"),
        ("en", "cares", "car"),
        ("en", "planes", "plan"),
        ("en", "Wales", "Wale"),
        ("de", "Reise", "Reis"),
        ("de", "Noten", "Not"),
        ("de", "Weine", "Wein"),
        ("es", "sales", "sal"),
        ("fr", "cours", "cour"),
        ("fr", "fois", "foi"),
        ("it", "prezzi", "prezzo"),
    ],
)
def test_a_brief_is_refused_exactly_if_its_mention_is_banned(locale: str, wanted: str, avoided: str) -> None:
    found = checks.banned(f"X {wanted}.", [avoided], locale) is not None
    assert contradicts(wanted, avoided, locale) is found
    assert not contradicts(wanted, avoided)


@pytest.mark.parametrize(("locale", "phrase", "forms", "others"), [
    ("en", "beer", "beers beer’s", "beech"), ("en", "new", "", "news"), ("de", "Bier", "Biere Bieres", "Bierzelt"),
    ("de", "Rat", "Rates", "Rate Raten"), ("en", "it", "", "its"),
])  # fmt: skip
def test_short_words_have_their_plurals_without_a_dictionary(locale: str, phrase: str, forms: str, others: str) -> None:
    assert [form for form in forms.split() if not contradicts(form, phrase, locale)] == []
    assert not any(contradicts(other, phrase, locale) for other in others.split())


@pytest.mark.parametrize("locale", ["en", "de", "ko", "it"])
def test_what_is_found_as_banned_counts_as_mentioned(locale: str) -> None:
    for text, phrase in (
        ("new beers", "beer"),
        ("Biere", "Bier"),
        ("혁신은", "혁신"),
        ("prezzi", "prezzo"),
        ("x", "y"),
    ):
        assert not checks.banned(text, [phrase], locale) or checks.mentions(text, [phrase], locale) is None
