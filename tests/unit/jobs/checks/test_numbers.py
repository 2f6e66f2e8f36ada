"""Numbers of the source in any form, numbers that it does not have, and numbers that a translation must keep."""

from __future__ import annotations

import pytest

from tests.unit.jobs.checks.reasons import reason
from thothy_ai.jobs import RejectionReason, checks
from thothy_ai.jobs.checks import numbers

NEW = RejectionReason.NUMBER_NOT_IN_SOURCE
ENGLISH = (
    "Sales rose by 12.5 percent to 1,200 bikes in 2021; three shops sold 40,000 euros worth, and fourteen people came. "
    "On May 3, 2024, prices fell 1.5%. The fund holds $2.4 billion and 3 to 5 million shares; half of them are new. "
    "It opens at 14:30 and has 418 members, up from 73."
)
CHINESE = "2023年，新能源汽车销量达到21.2万辆，同比增长百分之三十，投资3.5亿元。五月三日开业，三成来自农村。"
GERMAN = "Am 3. Mai 2024 stieg der Umsatz um 1,5 % auf 2,4 Mrd. Euro, bei 1.200 Händlern und einundzwanzig Filialen."

OF_THE_SOURCE = [
    ("1,200 bikes", "en", ENGLISH),
    ("1200 bikes", "en", ENGLISH),
    ("12.5% more in 2021.", "en", ENGLISH),
    ("3 shops and 14 people", "en", ENGLISH),
    ("40000 euros", "en", ENGLISH),
    ("more than 400 members", "en", ENGLISH),
    ("some 420 members", "en", ENGLISH),
    ("2.4 billion", "en", ENGLISH),
    ("$2,400 million", "en", ENGLISH),
    ("3 million to 5 million", "en", ENGLISH),
    ("50% are new", "en", ENGLISH),
    ("3 May 2024", "en", ENGLISH),
    ("2024-05-03", "en", ENGLISH),
    ("It opens at 2:30 p.m.", "en", ENGLISH),
    ("one of the two, and the first of all", "en", ENGLISH),
    ("no number", "en", ENGLISH),
    ("1. Prices fell.\n2. Sales rose.", "en", ENGLISH),
    ("Sales rose.[^7]", "en", ENGLISH),
    ("A G7 of bikes, with COVID-19 behind it.", "en", ENGLISH),
    ("1.200 Räder, 12,5 %", "de", ENGLISH),
    ("2,4 Milliarden Dollar, vierzehn Leute", "de", ENGLISH),
    ("2,4 Mrd. Dollar; am 3.5.2024", "de", ENGLISH),
    ("1 200 vélos, 2,4 milliards de dollars, quatorze personnes", "fr", ENGLISH),
    ("2.400 millones de dólares", "es", ENGLISH),
    ("2,4 mil millones de dólares", "es", ENGLISH),
    ("2,4 млрд долларов, 1200 велосипедов", "ru", ENGLISH),
    ("24億ドル、1200台、2024年5月3日、14時30分", "ja", ENGLISH),
    ("24亿美元，一千二百辆", "zh", ENGLISH),
    ("24억 달러, 자전거 1,200대", "ko", ENGLISH),
    ("٢٫٤ مليار دولار و١٢٠٠ دراجة", "ar", ENGLISH),
    ("1,200 साइकिलें, 14 लोग", "hi", ENGLISH),
    ("21.2万辆", "zh", CHINESE),
    ("21万辆左右", "zh", CHINESE),
    ("212,000 vehicles, 30% more, 350 million yuan", "en", CHINESE),
    ("212.000 Fahrzeuge, 350 Millionen Yuan, am 3. Mai", "de", CHINESE),
    ("3.5億元、30%", "ja", CHINESE),
    ("二十一万两千辆", "zh", CHINESE),
    ("2.4 billion euros, up 1.5%, 21 branches, 1,200 dealers", "en", GERMAN),
    ("2,4 miliardi di euro, +1,5%, ventuno filiali", "it", GERMAN),
    ("24亿欧元，1.5%，21家分店", "zh", GERMAN),
    ("over 350,000 people", "en", "Thousands came: 3.5 lakh people in all."),
    ("35,000 Menschen", "de", "More than 35k people came."),
    ("about 1.2 crore rupees", "en", "लागत 1.2 करोड़ रुपये थी।"),
    ("In 2024", "en", "令和6年に始まった。"),
    ("In 2024", "en", "เริ่มในปี 2567"),
    ("the season of 2020", "en", "In the season of 2019/20 it snowed."),
    ("since the ’90s", "en", "since the 1990s"),
    ("3割が農村", "ja", CHINESE),
    ("Anything without figures.", "en", ""),
    ("Seit 2026 zahlen 25-Jährige 1.200 Rupien.", "de", "From mid-2026, under-25s pay Rs1,200."),
    ("Five times as many: 5 times.", "en", "It grew from 3,500 to 19,000."),
    ("14 minutes less", "en", "It fell from 61 to 47 minutes."),
    ("75% go abroad.", "en", "Three of four bottles go abroad."),
    ("The other 29% stays.", "en", "Texas took 71% of it."),
    ("0,35 euro a bottiglia", "it", "Risparmia 35 centesimi a bottiglia."),
    ("a little over 3 years", "en", "Queues have grown to 38 months."),
    ("10,400 megawatts", "en", "They added 10.4 gigawatts."),
    ("超过20万份", "zh", "出具了21.2万份报告。"),
    ("3月に火災があった。", "ja", "There was a fire in March at a plant."),
    ("25 лет и 15 дней", "ru", "Двадцать пять лет и пятнадцать дней."),
    ("35 साल", "hi", "दुकान को खुले पैंतीस साल हुए हैं और ग्राहक रोज़ आते हैं।"),
    ("Cela coûte 34 pour cent de plus.", "fr", "Cela coûte 34 % de plus."),
    ("14時に出発する。", "ja", "It leaves at 2 pm."),
    ("the 2020s", "en", "It began in 2024."),
]
NOT_OF_THE_SOURCE = [
    ("In 2022, 3 shops", "en", ENGLISH),
    ("120 bikes", "en", ENGLISH),
    ("12,000 bikes", "en", ENGLISH),
    ("4 shops", "en", ENGLISH),
    ("a 25% rise", "en", ENGLISH),
    ("Prices fell 15%.", "en", ENGLISH),
    ("Prices fell 0.15%.", "en", ENGLISH),
    ("in 2020", "en", ENGLISH),
    ("$2.4 million", "en", ENGLISH),
    ("$24 billion", "en", ENGLISH),
    ("fifty people came", "en", ENGLISH),
    ("417 members", "en", ENGLISH),
    ("2,4 Millionen Dollar", "de", ENGLISH),
    ("2,4 Billionen Dollar", "de", ENGLISH),
    ("2,4 billions de dollars", "fr", ENGLISH),
    ("dreiundzwanzig Leute", "de", ENGLISH),
    ("2,4 млн долларов", "ru", ENGLISH),
    ("240億ドル", "ja", ENGLISH),
    ("2.4亿美元", "zh", ENGLISH),
    ("212万辆", "zh", CHINESE),
    ("2.12万辆", "zh", CHINESE),
    ("21.2 million vehicles", "en", CHINESE),
    ("2,120,000 vehicles", "en", CHINESE),
    ("up 15%", "en", GERMAN),
    ("um 15 %", "de", GERMAN),
    ("2.4 million euros", "en", GERMAN),
    ("22 Filialen", "de", GERMAN),
    ("am 4. Mai", "de", GERMAN),
    ("٣٤ دراجة", "ar", ENGLISH),
    ("15 प्रतिशत", "hi", ENGLISH),
    ("5 years", "en", ""),
    ("16 % pendant les travaux", "fr", "41 accidents ; 282 millions pour 250 kilomètres, et 6 % de moins."),
    ("43 % des trajets", "fr", "Entre 8 h et 9 h, 34 % des trajets, contre 29 % en voiture."),
    ("6 % weniger", "de", "Der Preis sank um 5,5 % auf der Messe."),
    ("36 лет", "ru", "Двадцать пять лет."),
]


@pytest.mark.parametrize(("text", "locale", "source"), OF_THE_SOURCE)
def test_numbers_of_the_source(text: str, locale: str, source: str) -> None:
    assert checks.new_number(text, source, locale) is None


@pytest.mark.parametrize(("text", "locale", "source"), NOT_OF_THE_SOURCE)
def test_numbers_not_in_the_source(text: str, locale: str, source: str) -> None:
    assert reason(checks.new_number(text, source, locale)) is NEW


KEPT = [
    ("Am 3. Mai 2024 sank der Preis um 1,5 %.", "de", "On May 3, 2024, the price fell 1.5%.", "en"),
    ("Am 03.05.2024 sank der Preis um 1,5 %.", "de", "On May 3, 2024, the price fell 1.5%.", "en"),
    ("On May 3, 2024, the price fell 1.5%.", "en", "Am 03.05.2024 sank der Preis um 1,5 %.", "de"),
    ("2024年5月3日，价格下降1.5%。", "zh", "On May 3, 2024, the price fell 1.5%.", "en"),
    ("Drei Läden, zwölf Räder.", "de", "3 shops, 12 bikes.", "en"),
    ("Three shops, 12 bikes.", "en", "Drei Läden, zwölf Räder.", "de"),
    ("Les deux enfants ont 12 ans.", "fr", "Both children are twelve.", "en"),
    ("Das Fünffache der 73 von 2019.", "de", "Five times the 73 of 2019.", "en"),
    ("Um 14:30 Uhr.", "de", "At 2:30 pm.", "en"),
    ("At 2:30 pm.", "en", "Um 14:30 Uhr.", "de"),
    ("21.2万辆", "zh", "212,000 vehicles", "en"),
    ("212,000 vehicles", "en", "21.2万辆", "zh"),
    ("2,4 Milliarden", "de", "2.4 billion", "en"),
    ("Три магазина и 12 велосипедов.", "ru", "3 shops and 12 bikes.", "en"),
    ("三家店，十二辆自行车。", "zh", "3 shops, 12 bikes.", "en"),
    ("Kolme kauppaa ja 12 pyörää.", "fi", "3 shops and 12 bikes.", "en"),
    ("١٢ دراجة وثلاثة متاجر", "ar", "3 shops and 12 bikes.", "en"),
    ("Ohne Zahlen.", "de", "No figures.", "en"),
]
NOT_KEPT = [
    ("Der Preis sank.", "de", "The price fell 15%.", "en"),
    ("Der Preis sank um 15 %.", "de", "The price fell 1.5%.", "en"),
    ("Der Preis sank um 1,5 % auf 20 Euro.", "de", "The price fell 1.5%.", "en"),
    ("价格下降。", "zh", "The price fell 1.5%.", "en"),
    ("212万辆", "zh", "212,000 vehicles", "en"),
    ("2,4 Millionen", "de", "2.4 billion", "en"),
    ("Am 4. Mai 2024.", "de", "On May 3, 2024.", "en"),
    ("2023年5月3日。", "zh", "On May 3, 2024.", "en"),
    ("Läden und Räder.", "de", "3 shops, 12 bikes.", "en"),
    ("Магазины и велосипеды.", "ru", "3 shops, 12 bikes.", "en"),
    ("418 Mitglieder.", "de", "417 members.", "en"),
    ("420 Mitglieder.", "de", "418 members.", "en"),
]


@pytest.mark.parametrize(("text", "locale", "original", "source_locale"), KEPT)
def test_numbers_that_a_translation_keeps(text: str, locale: str, original: str, source_locale: str) -> None:
    assert checks.numbers_kept(text, original, source_locale, locale) is None


@pytest.mark.parametrize(("text", "locale", "original", "source_locale"), NOT_KEPT)
def test_numbers_that_a_translation_changes(text: str, locale: str, original: str, source_locale: str) -> None:
    assert reason(checks.numbers_kept(text, original, source_locale, locale)) is NEW


COFFEE = (
    "The coffee maker costs $189 and has 41 parts.\n\nThe first run is 8,000 units, of which 3,100 are sold."
    " Backers paid $149. The trial lasts 18 months from 6 October 2025. Shrink was 1.9 percent."
)


@pytest.mark.parametrize(
    "text",
    [
        "New buyers pay $40 more than others did.",
        "Not quite 40% of the 8,000 units are gone.",
        "If all goes well, the trial lasts until spring 2027.",
        "Shrink stayed below 2%.",
    ],
)
def test_what_an_editor_may_make_of_figures(text: str) -> None:
    assert checks.new_number(text, COFFEE, "en") is None


@pytest.mark.parametrize("text", ["New buyers pay $43 more than others did.", "The trial lasts until spring 2029."])
def test_what_figures_do_not_come_to(text: str) -> None:
    assert checks.new_number(text, COFFEE, "en") is not None


def test_a_translation_keeps_its_months() -> None:
    original = "The next study begins on 4 March 2026, and the last one in September 2027."
    right = "La prochaine étude commence le 4 mars 2026, et la dernière en septembre 2027."
    assert checks.numbers_kept(right, original, "en", "fr") is None
    assert checks.numbers_kept(right.replace("mars", "mai"), original, "en", "fr") is not None


def test_numbers_in_words_may_have_any_apostrophe() -> None:
    assert checks.numbers_kept("Пором долає дев’ять кілометрів.", "The ferry crosses 9 kilometres.", "en", "uk") is None


def test_a_hundred_is_known_as_what_a_share_is_of() -> None:
    source = "Only 38 percent of the clothes can be sold again."
    assert checks.new_number("Of 100 pieces, 38 are sold again.", source, "en") is None
    assert checks.new_number("The shop has 100 shelves for clothes.", source, "en") is not None


@pytest.mark.parametrize(
    ("text", "locale", "found"),
    [
        ("In the shop, 38 in 100 are sold again.", "en", False),
        ("One in 100 is not.", "en", False),
        ("Uno de cada 100 se vende.", "es", False),
        ("服は100枚のうち38枚が売れる。", "ja", False),
        ("Hay 100 casas de madera.", "es", True),
        ("The shop is in 1,000 cities.", "en", True),
        ("It means a loss of 1,000 jobs.", "en", True),
        ("100に増えた。", "ja", True),
    ],
)
def test_the_base_of_a_share_has_a_share_beside_it(text: str, locale: str, found: bool) -> None:
    source = "Only 38 percent of the clothes can be sold again."
    assert (checks.new_number(text, source, locale) is not None) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("Members pay $9 a month.", True),
        ("The app is free for members; others pay $9 a month.", False),
        ("Für Mitglieder ist die App kostenlos, andere zahlen 9 Dollar.", False),
    ],
)
def test_what_is_free_costs_nothing(source: str, found: bool) -> None:
    assert (checks.new_number("Members pay $0.", source, "en") is not None) == found


def test_nothing_is_calculated_for_numbers_that_the_source_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("there is nothing to explain")

    monkeypatch.setattr(numbers, "Derivations", refuse)
    source = "In 2019 there were 412 cafés; now there are 3,840 of them, and 61 cities pay 63% of the rent."
    assert (
        checks.new_number("Of 3,840 cafés, 61 cities support most, up from 412, with 63 per cent.", source, "en")
        is None
    )
    with pytest.raises(AssertionError, match="nothing to explain"):
        checks.new_number("There are 3,428 more cafés.", source, "en")
