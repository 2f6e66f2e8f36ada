"""Invented names, and good texts with capitals."""

from __future__ import annotations

import pytest

from thothy_ai.jobs import RejectionReason, checks

ENGLISH = (
    "In Freiburg, the dealer Radhaus Sonne sold 418 cargo bikes. “People replace the second car,” says its "
    "manager, Katrin Vogel. The European Cyclists' Federation and the Technical University of Munich counted them"
    " for the city's website."
)
GERMAN = "In Freiburg verkaufte der Händler Radhaus Sonne 418 Lastenräder, sagt die Leiterin Katrin Vogel vom Verband."
FRENCH = "À Lyon, trois artisans vendent des pots en grès, dit Claire Dupont. Le marché double chaque année."
RUSSIAN = "В Казани магазин «Велодом» продал 418 велосипедов, говорит директор Анна Петрова."
JAPANESE = "福岡の店主、田中氏は発酵食品が人気だと話す。東京大学の調査もある。"
CHINESE = "北京的王建国教授表示，新能源汽车销量上升。"
KOREAN = "서울의 김민수 교수는 자전거 판매가 늘었다고 말했다."

NAMES_OF_THE_SOURCE = [
    ("Katrin Vogel, who runs Radhaus Sonne in Freiburg, sees families swap cars for bikes.", "en", ENGLISH),
    ("Vogel's shop sold 418 bikes. Families in Germany and the European Union follow.", "en", ENGLISH),
    ("The ECF counts them, and so does the University of Munich.", "en", ENGLISH),
    ("On Monday in May, Belgian and Dutch families did the same.", "en", ENGLISH),
    ("Why Cargo Bikes Are Replacing The Second Car", "en", ENGLISH),
    ("Bikes: Families love them. “Nobody walks,” she says. Really? Yes.", "en", ENGLISH),
    ("I think that's OK, and I'm sure the CEO of the EU agrees.", "en", ENGLISH),
    ("- Bikes\n- Boxes\n- Garages", "en", ENGLISH),
    ("Die Leiterin Katrin Vogel verkauft Räder an Familien mit Kindern und Kisten voller Wasser.", "de", GERMAN),
    ("Millionen Euro fließen in Tonnen Stahl.", "de", GERMAN),
    ("Die Bundesregierung fördert Lastenräder in Städten.", "de", GERMAN),
    ("À Lyon, Claire Dupont vend des pots. En France, le marché double.", "fr", FRENCH),
    ("В Казани Анна Петрова продала больше. Петровой верят в России.", "ru", RUSSIAN),
    ("田中氏によると、発酵食品は人気だ。同氏は続ける。", "ja", JAPANESE),
    ("王建国教授说，销量上升。", "zh", CHINESE),
    ("김민수 교수에 따르면 판매가 늘었다.", "ko", KOREAN),
    ("In Cologne and Munich, families buy cargo bikes, says the Federal Ministry.", "en", GERMAN),
    ("Die Technische Universität München hat gezählt.", "de", ENGLISH),
    ("Helsingissä myydään pyöriä.", "fi", "Helsingin kauppa myy pyöriä."),
]
INVENTED = [
    ("Families love them, says Maria Lopez of the shop.", "en", ENGLISH),
    ("The dealer sold 418 bikes, more than Decathlon.", "en", ENGLISH),
    ("Its manager, Katrin Weber, sees families swap cars.", "en", ENGLISH),
    ("Sales rose, and OpenAI noticed.", "en", ENGLISH),
    ("The trend has reached Stuttgart by now.", "en", ENGLISH),
    ("Laut Frau Schneider steigt der Absatz.", "de", GERMAN),
    ("Das sagt Thomas Krüger vom Verband.", "de", GERMAN),
    ("Die Bosch GmbH baut die Motoren.", "de", GERMAN),
    ("À Lyon, selon Pierre Martin, le marché double.", "fr", FRENCH),
    ("По словам Ивана Сидорова, продажи выросли.", "ru", RUSSIAN),
    ("鈴木氏によると、発酵食品は人気だ。", "ja", JAPANESE),
    ("マイケルさんによると人気だ。", "ja", JAPANESE),
    ("李明华教授说，销量上升。", "zh", CHINESE),
    ("박지훈 교수는 판매가 늘었다고 말했다.", "ko", KOREAN),
    ("Sales rose, says Peter Zwegat, a dealer.", "en", GERMAN),
]


@pytest.mark.parametrize(("text", "locale", "source"), NAMES_OF_THE_SOURCE)
def test_names_of_the_source(text: str, locale: str, source: str) -> None:
    assert checks.new_name(text, source, locale) is None


@pytest.mark.parametrize(("text", "locale", "source"), INVENTED)
def test_invented_names(text: str, locale: str, source: str) -> None:
    finding = checks.new_name(text, source, locale)
    assert finding
    assert finding.reason is RejectionReason.NAME_NOT_IN_SOURCE


def test_a_producer_s_brand_is_allowed() -> None:
    assert checks.new_name("The bikes come from Thothy Wheels.", ENGLISH, "en", ["Thothy Wheels"]) is None
    assert checks.new_name("The bikes come from Thothy Wheels.", ENGLISH, "en") is not None


PEOPLE = "Yesterday Hill presented the budget. Later Berg answered. Hannah Oyelaran and Peter Dunmore listened."


@pytest.mark.parametrize(
    "text", ["Later Hill left.", "When Berg answered, Peter Dunmore listened.", "Yesterday Oyelaran"]
)
def test_a_word_with_a_capital_before_a_name_is_no_part_of_it(text: str) -> None:
    assert checks.new_name(text, PEOPLE, "en") is None


FULL = "At noon Hannah Oyelaran opened the shop, and then Peter Dunmore found money for Maëlle Guivarch in the budget."


@pytest.mark.parametrize("text", ["Hannah Dunmore opened the shop.", "Today Maëlle Oyelaran and Peter Dunmore spoke."])
def test_a_name_made_of_two_names_of_the_source_is_new(text: str) -> None:
    finding = checks.new_name(text, FULL, "en")
    assert finding
    assert finding.reason is RejectionReason.NAME_NOT_IN_SOURCE


@pytest.mark.parametrize("text", ["Hannah Oyelaran opened the shop.", "The shop of Hannah and Peter Dunmore is open."])
def test_a_name_of_the_source_is_not_made_of_two(text: str) -> None:
    assert checks.new_name(text, FULL, "en") is None


def test_an_invented_first_name_at_the_beginning_of_a_sentence_is_new() -> None:
    assert checks.new_name("Beatrix Dunmore found the money.", FULL, "en") is not None
    assert checks.new_name("Councillor Dunmore found the money.", FULL, "en") is None


@pytest.mark.parametrize(
    ("text", "source", "locale", "found"),
    [
        ("厂长陈秀珍上任。", "厂长林秀珍上任，陈志远负责网店。", "zh", True),
        ("厂长林秀珍上任。", "厂长林秀珍上任，陈志远负责网店。", "zh", False),
        ("理事長の小池節子さんが話す。", "理事長の宮坂節子さんと、パン屋の小池拓真さんが話す。", "ja", True),
        ("理事長の宮坂節子さんが話す。", "理事長の宮坂節子さんと、パン屋の小池拓真さんが話す。", "ja", False),
        ("समिति की अध्यक्ष डॉ. मेहरुन्निसा हैं।", "समिति की अध्यक्ष रुख़साना अंसारी हैं।", "hi", True),
    ],
)
def test_names_in_scripts_without_capitals(text: str, source: str, locale: str, found: bool) -> None:
    assert (checks.new_name(text, source, locale) is not None) == found


@pytest.mark.parametrize(
    ("text", "source", "locale"),
    [
        ("डॉक्टर कहते हैं कि झील भर गई।", "झील पिछले मानसून में फिर भर गई।", "hi"),
        ("قال الدكتور بجامعة أسيوط إن المياه تكفي.", "المياه تكفي القرية هذا العام.", "ar"),
        ("高岡の八百屋さんも利用者さんも喜ぶ。", "高岡の商店街に客が戻った。", "ja"),
        ("이 마을들 대표가 모였다.", "마을 사람들이 버스를 기다린다.", "ko"),
    ],
)
def test_roles_are_no_names(text: str, source: str, locale: str) -> None:
    assert checks.new_name(text, source, locale) is None


def test_names_from_another_alphabet_are_transliterated() -> None:
    source = "В Перми тренер Оксана Берсенева ведёт бесплатные занятия для тех, кому за пятьдесят."
    assert (
        checks.new_name("In Perm the coach Oksana Berseneva teaches people over fifty for free.", source, "en") is None
    )


@pytest.mark.parametrize(
    ("text", "source", "locale"),
    [
        ("Für einen Liter Milch zahlt man mehr.", "Ein Liter Benzin ist teurer als ein Glas Milch im Haus.", "de"),
        ("Das gilt bis Ende März.", "Es kam am Ende Juli, nicht am Anfang März.", "de"),
        ("The rules of the European Council apply.", "The European Union and the City Council agree.", "en"),
        (
            "It is a beginning for New England in the New Year.",
            "In New York and Old England, a Happy Year began.",
            "en",
        ),
        ("Then Conan O'Neal spoke.", "Yesterday Conan O'Brien met Shaquille O'Neal.", "en"),
    ],
)
def test_words_of_two_names_of_the_source_may_be_no_person(text: str, source: str, locale: str) -> None:
    assert checks.new_name(text, source, locale) is None


def test_surnames_with_a_prefix_are_told_apart() -> None:
    source = "Hannah O'Brien opened a shop. In the council, Peter O'Neal spoke."
    assert checks.new_name("Then Peter O'Neal spoke.", source, "en") is None
    assert checks.new_name("Then Hannah O'Neal spoke.", source, "en") is not None


@pytest.mark.parametrize(
    ("text", "source", "locale"),
    [
        ("京都大学工学部教授の山田太郎氏が話す。", "東北理学部教授は山田太郎氏。", "ja"),
        ("代表取締役社長が話す。", "専務取締役社長、外部取締役社長。", "ja"),
        ("정부가 임명한 위원장이 말했다.", "위원장은 정부가 뽑았다.", "ko"),
        ("이에도 사장은 웃었다.", "사장은 웃었다.", "ko"),
    ],
)
def test_parts_of_words_before_a_title_are_no_names(text: str, source: str, locale: str) -> None:
    assert checks.new_name(text, source, locale) is None


def test_an_invented_name_before_a_title_is_new() -> None:
    assert checks.new_name("어제 김민준 위원장이 말했다.", "위원장은 정부가 뽑았다.", "ko") is not None
