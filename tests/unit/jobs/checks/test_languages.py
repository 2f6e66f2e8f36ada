"""Texts in the right and in the wrong language and script."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.unit.jobs.checks.reasons import reason
from thothy_ai.jobs import RejectionReason, checks
from thothy_ai.jobs.checks import languages, vocabulary

TEXTS = {
    "en": "Cargo bikes are replacing the second car. Most families ask whether two children and a crate of water fit.",
    "de": "Lastenräder ersetzen das zweite Auto. Die meisten Familien fragen, ob zwei Kinder hineinpassen.",
    "fr": "Les vélos cargo remplacent la deuxième voiture. Les familles demandent si deux enfants y tiennent.",
    "es": "Las bicicletas de carga sustituyen al segundo coche. Muchas familias preguntan si caben dos niños.",
    "pt-BR": "As bicicletas de carga substituem o segundo carro. Muitas famílias perguntam se cabem duas crianças.",
    "it": "Le biciclette da carico sostituiscono la seconda auto. Molte famiglie chiedono se ci stanno due bambini.",
    "pl": "Rowery towarowe zastępują drugi samochód. Większość rodzin pyta, czy zmieści się dwoje dzieci.",
    "ru": "Грузовые велосипеды заменяют второй автомобиль. Семьи спрашивают, поместятся ли двое детей.",
    "tr": "Kargo bisikletleri ikinci arabanın yerini alıyor. Aileler iki çocuğun sığıp sığmayacağını soruyor.",
    "ar": "تحل دراجات الشحن محل السيارة الثانية. تسأل معظم العائلات عما إذا كان هناك مكان لطفلين.",
    "hi": "कार्गो साइकिलें दूसरी कार की जगह ले रही हैं। अधिकतर परिवार पूछते हैं कि क्या दो बच्चे बैठ सकते हैं।",
    "ja": "カーゴバイクが二台目の車に取って代わっている。多くの家族は子ども二人が乗れるかを尋ねる。",
    "ko": "화물 자전거가 두 번째 자동차를 대신하고 있다. 많은 가족은 아이 둘이 탈 수 있는지 묻는다.",
    "zh": "货运自行车正在取代家里的第二辆车。多数家庭会问，能不能坐下两个孩子。",
    "th": "จักรยานบรรทุกกำลังแทนที่รถคันที่สอง หลายครอบครัวถามว่าเด็กสองคนนั่งได้หรือไม่",
    "fi": "Tavarapyörät korvaavat toisen auton. Useimmat perheet kysyvät, mahtuuko kyytiin kaksi lasta.",
}
WRONG = RejectionReason.WRONG_LANGUAGE


@pytest.mark.parametrize("written", TEXTS)
@pytest.mark.parametrize("requested", TEXTS)
def test_language(written: str, requested: str) -> None:
    assert reason(checks.wrong_language(TEXTS[written], requested)) is (None if written == requested else WRONG)


@pytest.mark.parametrize(
    ("text", "locale"),
    [
        ("Mehr Rad, weniger Blech", "de"),
        ("The bar that serves no alcohol", "en"),
        ("Le vélo qui remplace la voiture", "fr"),
        ("Der Startup-Hub bietet Coworking und ein Newsletter-Tool für Founder.", "de-AT"),
        ("Mit Google Analytics, Facebook Ads Manager und Mailchimp messen Teams ihre Newsletter.", "de"),
        ("Öffnen Sie „Settings and Privacy for Everyone“ und klicken Sie auf `Save all changes now`.", "de"),
        ("Cyklen erstatter den anden bil i mange familier.", "da"),
        ("Sykkelen erstatter den andre bilen i mange familier.", "nb"),
        ("Teretni bicikli zamjenjuju drugi automobil u mnogim obiteljima.", "hr"),
        ("Teretni bicikli zamenjuju drugi automobil u mnogim porodicama.", "sr-Latn"),
        ("Sepeda kargo menggantikan mobil kedua di banyak keluarga.", "id"),
        ("発酵食品の人気が高まっています。", "ja"),
        ("貨運自行車正在取代第二輛車，許多家庭都在問。", "zh-TW"),
        ("貨運自行車正在取代第二輛車，許多家庭都在問。", "zh"),
        ("货运自行车正在取代第二辆车。", "zh-CN"),
        ("iPhone 15 Pro Max 在中国市场销量上升。", "zh"),
        ("OK!", "de"),
        ("2.400 km", "fr"),
        ("https://example.com/the/long/way/to/a/small/planet", "de"),
        ("Einstellungen gespeichert", "de"),
    ],
)
def test_language_accepts(text: str, locale: str) -> None:
    assert checks.wrong_language(text, locale) is None


@pytest.mark.parametrize(
    ("text", "locale"),
    [
        (f"Lastenräder ersetzen das zweite Auto. {TEXTS['en']}", "de"),
        (f"{TEXTS['zh']} {TEXTS['en']} {TEXTS['en']}", "zh"),
        (TEXTS["zh"], "zh-TW"),
        ("貨運自行車正在取代第二輛車，許多家庭都在問。", "zh-CN"),
        ("貨運自行車正在取代第二輛車，許多家庭都在問。", "zh-Hans"),
        ("Your settings have been saved successfully", "de"),
    ],
)
def test_language_rejects(text: str, locale: str) -> None:
    assert reason(checks.wrong_language(text, locale)) is WRONG


@pytest.mark.parametrize("locale", TEXTS)
def test_a_sentence_may_change_from_any_language_to_any_other(locale: str) -> None:
    own = TEXTS[locale].partition(".")[0]
    for other, foreign in TEXTS.items():
        for text in (f"{own} {foreign}", f"{foreign[:24]} {own[:30]} {foreign[24:]}", f"{own} {own} {foreign[:20]}"):
            finding = checks.wrong_language(text, locale)
            assert finding is None or other != locale, text


def test_the_detail_names_both_languages() -> None:
    finding = checks.wrong_language(TEXTS["en"], "de-CH")
    assert finding
    assert finding.detail.startswith("expected Swiss High German, detected English (")


@pytest.mark.parametrize(
    ("locale", "foreign"),
    [
        ("de", "Tourists are coming back."),
        ("de", "Les prix montent encore cette année."),
        ("en", "Die Preise steigen weiter an."),
        ("es", "Viele Kunden sind zufrieden."),
        ("fr", "Los precios suben otra vez."),
        ("it", "Small shops profit most of all."),
        ("de", "Demand is growing fast."),
        ("de", "This matters for commuters."),
        ("fr", "Half of all homes have solar panels."),
        ("tr", "The trend is here to stay."),
        ("tr", "De klanten zijn tevreden."),
    ],
)
def test_a_short_sentence_in_another_language_is_found_by_its_words_and_named(locale: str, foreign: str) -> None:
    text = f"{TEXTS[locale]} `left out` {foreign}"
    found = checks.wrong_language(text, locale)
    assert found is not None
    assert found.span is not None
    assert text[slice(*found.span)] == foreign
    assert foreign in found.detail


def test_the_detector_is_thread_safe() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda locale: checks.wrong_language(TEXTS[locale], locale), list(TEXTS) * 5))
    assert found == [None] * len(TEXTS) * 5


NAMES = (
    "Iskra Brzezie, a club from a town of 17,000 people, have reached the quarter-finals of the Polish Cup. On"
    " Wednesday 4 December 2024 the third-tier side beat top-flight Bałtyk Nadmorze 2–1 at home. Bałtyk were a man"
    " down from the 61st minute, when their captain, Tomasz Wilga, was sent off."
)
NEWS = (
    "Cargo bikes are replacing the second car in many towns of the north. Most families ask whether two children and a"
    " crate of water fit."
)
LATIN = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore."
ESPERANTO = (
    "La aliĝintoj de la klubo renkontiĝas ĉiusemajne en la malnova stacidomo kaj parolas pri siaj vojaĝoj tra la mondo."
)


def test_sentences_with_foreign_names_are_in_the_language_of_their_other_words() -> None:
    assert checks.wrong_language(NAMES, "en") is None


@pytest.mark.parametrize("passage", [LATIN, ESPERANTO])
def test_a_long_sentence_in_a_language_that_is_seldom_written_is_foreign(passage: str) -> None:
    assert reason(checks.wrong_language(f"{NEWS} {passage}", "en")) is WRONG


OWN = {
    "de": ("Der Teig ruht über Nacht im Keller.", "Danach wird er am frühen Morgen geformt und gebacken."),
    "es": ("La masa reposa durante la noche en el sótano.", "Después se forma y se hornea por la mañana."),
    "fr": ("La pâte repose toute la nuit à la cave.", "Elle est ensuite façonnée et cuite au petit matin."),
    "it": ("L'impasto riposa tutta la notte in cantina.", "Poi viene formato e cotto al mattino presto."),
    "nl": ("Het deeg rust een nacht in de kelder.", "Daarna wordt het vroeg in de ochtend gebakken."),
    "pl": ("Ciasto odpoczywa przez noc w piwnicy.", "Potem piecze się je wcześnie rano."),
    "sv": ("Degen vilar över natten i källaren.", "Sedan formas och gräddas den tidigt på morgonen."),
    "tr": ("Hamur gece boyunca kilerde dinlenir.", "Sonra sabah erkenden şekil verilir ve pişirilir."),
    "ja": ("生地は一晩、地下室で休ませる。", "その後、早朝に形を整えて焼く。"),
    "hi": ("आटा रात भर तहखाने में रखा जाता है।", "फिर सुबह जल्दी उसे पकाया जाता है।"),
}


@pytest.mark.parametrize(
    "foreign",
    [
        "Hull and Bradford will open similar collections in spring 2026.",
        "It will cost about 3 million euros in total.",
        "Bakers are happy with the change.",
        "Nobody knows how long it takes.",
        "Prices will rise again next spring.",
        "Experts see no reason for concern.",
    ],
)
@pytest.mark.parametrize("locale", OWN)
def test_an_english_sentence_is_found_wherever_it_stands(locale: str, foreign: str) -> None:
    first, last = OWN[locale]
    for sentences in ((foreign, first, last), (first, foreign, last), (first, last, foreign), (first, foreign)):
        found = checks.wrong_language(text := " ".join(sentences), locale)
        assert found is not None, sentences
        assert found.span is not None
        assert text[slice(*found.span)] in {foreign, text}
    assert checks.wrong_language(f"{first} {last}", locale) is None
    assert checks.wrong_language(f"{first} {last} “{foreign}”", locale) is None


@pytest.mark.parametrize(
    ("text", "locale"),
    [
        ("Selon le New York Times, Google Cloud Platform mise sur le machine learning. C'est ainsi à Paris.", "fr"),
        ("Laut Wall Street Journal setzt die Google Cloud Platform auf Machine Learning. Das ist in Berlin so.", "de"),
        ("„The Wall“ und „The Dark Side of the Moon“ verkaufen sich gut. Die Händler sind froh.", "de"),
        ("Según el New York Times, Google Cloud Platform apuesta por el machine learning. Así es en Madrid.", "es"),
        ("All you can eat war gestern. Heute zählt Qualität.", "de"),
        ("Das Angebot on demand ist up to date.", "de"),
        ("Viele Menschen freuen sich darüber, weil sie mehr Auswahl haben. Ready to go: der Koffer.", "de"),
    ],
)
def test_english_names_and_loans_make_no_english_sentence(text: str, locale: str) -> None:
    assert checks.wrong_language(text, locale) is None


def test_a_foreign_paragraph_is_found_from_its_beginning_to_its_end() -> None:
    foreign = "The city is building new cycle paths. They cost a lot of money, the mayor says."
    text = f"{TEXTS['de']}\n\n{foreign}\n\nIm Herbst wird der erste Abschnitt eröffnet, und alle freuen sich darauf."
    found = checks.wrong_language(text, "de")
    assert found is not None
    assert found.span is not None
    assert text[slice(*found.span)] == foreign


@pytest.mark.parametrize(
    ("text", "locale"),
    [
        ("Pádel: ¿hasta dónde?. El auge. El ruido. El techo", "es-ES"),  # which looks Slovak
        ("Man war so fast am Ende. Der Wind war warm, und es war so still.", "de"),
        ("Elas são as de lá. Quando for a hora, no fim do mês, a conta vem.", "pt"),
        ("Are un plan. Ei sunt la fel de siguri ca or fi fost.", "ro"),
    ],
)
def test_short_texts_of_words_that_other_languages_have_too_pass(text: str, locale: str) -> None:
    assert checks.wrong_language(text, locale) is None


@pytest.mark.parametrize("locale", ["de", "fr", "es", "pt", "it", "nl", "pl"])
def test_only_the_english_dictionary_is_needed_to_see_that_a_text_is_not_english(
    locale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = set[str]()

    def is_known(word: str, language: str) -> bool:
        asked.add(language)
        return vocabulary.is_known(word, language)

    monkeypatch.setattr(languages, "is_known", is_known)
    texts = [text for written, text in TEXTS.items() if written.startswith(locale)]
    assert [checks.wrong_language(text, locale) for text in texts] == [None] * len(texts)
    assert asked <= {"en"}
