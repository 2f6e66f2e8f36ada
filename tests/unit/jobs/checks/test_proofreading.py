"""Quotations, titles, forms of address, slips and words that are none."""

from __future__ import annotations

import pytest

from thothy_ai.jobs import checks
from thothy_ai.jobs.api.verdict import RejectionReason

SOURCE = """Paint that moves buses

"Paint suggests, cameras insist," says Rocío Vega, who heads the transport department. The paint cost 2.2 million euros
in all, and the cameras as much again, as the council said in a report that nobody has read to its end so far.

Drivers disagree. Their speaker, Tomás Ruiz, calls the lanes a toy: "We lose a quarter of an hour on every trip."
"""


@pytest.mark.parametrize(
    "text",
    [
        "“Paint suggests, cameras insist,” says Rocío Vega.",
        "Vega says: “Paint suggests, cameras insist.” Buses are faster.",
        "“Paint suggests … cameras insist,” Vega explained.",
        "“[The] cameras insist,” says the head of transport.",
        "A dealer in Seville says “we lose a quarter of an hour on every trip”.",
        "What she calls “smart paint” works.",
        "“They lose a quarter of an hour on every trip,” says Ruiz.",
    ],
)
def test_a_quotation_of_the_source_may_be_adapted(text: str) -> None:
    assert checks.misquoted(text, SOURCE, "en") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("“We will never go back to cars,” says Vega.", "what the source does not say"),
        ("“We lose a quarter of an hour on every trip,” says Rocío Vega.", "to Rocío Vega"),
        ("Tomás Ruiz says: “Paint suggests, cameras insist.”", "to Tomás Ruiz"),
    ],
)
def test_an_invented_quotation_and_another_speaker_are_found(text: str, said: str) -> None:
    rejection = checks.misquoted(text, SOURCE, "en")
    assert rejection is not None
    assert rejection.reason is RejectionReason.MISQUOTED
    assert said in rejection.detail
    assert rejection.span is not None
    assert text[slice(*rejection.span)].startswith("“")


def test_a_translated_quotation_cannot_be_compared() -> None:
    assert checks.misquoted("„Farbe schlägt vor, Kameras bestehen darauf“, sagt Vega.", SOURCE, "de") is None


@pytest.mark.parametrize(
    ("title", "own"),
    [("Paint that moves buses", True), ("Paint That Moves Buses!", True), ("How paint made buses faster", False)],
)
def test_a_title_is_not_the_source_s(title: str, own: bool) -> None:
    assert (checks.own_title(title, SOURCE) is not None) is own
    assert checks.own_title("Drivers disagree", "Drivers disagree. They lose time.") is None


@pytest.mark.parametrize(
    ("title", "source"),
    [
        ("How paint moves buses", "By Ann Lee\n\nHow paint moves buses\n\nPaint is cheap."),
        ("How Paint Moves Buses", "Title: How paint moves buses | The Daily Post\n\nPaint is cheap."),
        ("How paint moves buses", "# How paint moves buses.\nPaint is cheap."),
        ("Buses win", "Buses win\n\nPaint is cheap."),
        ("パンが変わる朝の風景", "パンが変わる朝の風景\n\nパンは休む。"),
        ("Как краска движет автобусы", "Как краска движет автобусы\n\nКраска дешева."),
    ],
)
def test_the_source_s_title_may_stand_under_a_byline_or_beside_the_site_s_name(title: str, source: str) -> None:
    assert checks.own_title(title, source) is not None


def test_a_standfirst_says_more_than_the_title() -> None:
    assert checks.repeated_title("How paint made buses faster", "How paint made buses faster, and what it cost.")
    assert checks.repeated_title("How paint made buses faster", "Red lanes sped up buses in a year.") is None
    assert checks.repeated_title("Paint made buses faster in Hull", "In Hull, paint made the buses faster.")
    assert checks.repeated_title("パンが変わる朝の風景", "パンが変わる朝の風景とその理由。")
    assert checks.repeated_title("Buses win", "Buses win because red lanes keep cars out of their way.") is None


@pytest.mark.parametrize(
    ("text", "formality", "locale", "wrong"),
    [
        ("Wenn du kommst, bring dein Rad mit.", "formal", "de-DE", "du"),
        ("Bitte bringen Sie Ihr Rad mit.", "informal", "de", "Sie"),
        ("Sie kommt. Sie geht.", "informal", "de", None),
        ("„Hast du Zeit?“, fragt sie.", "formal", "de", None),
        ("Si tu viens, prends ton vélo.", "formal", "fr", "tu"),
        ("Venez avec votre vélo.", "informal", "fr", "votre"),
        ("Come with your bicycle.", "formal", "en", None),
        ("Приходи, возьми твой велосипед.", "formal", "ru", "твой"),
        ("Wenn du kommst, bring dein Rad mit.", "neutral", "de", None),
        ("Le ton est donné.", "formal", "fr", None),
        ("Se o senhor vem, traga a bicicleta.", "informal", "pt-PT", "o senhor"),
        ("Sen gelirsen bisikletini al.", "formal", "tr", "Sen"),
        ("Приходьте, візьміть ваш велосипед.", "informal", "uk", "ваш"),
        ("Jos sinä tulet, ota pyörä.", "formal", "fi", "sinä"),
    ],
)
def test_the_reader_is_addressed_as_was_asked(text: str, formality: str, locale: str, wrong: str | None) -> None:
    rejection = checks.address(text, formality, locale)
    assert (rejection and rejection.span and text[slice(*rejection.span)]) == wrong


@pytest.mark.parametrize(
    ("text", "locale", "found"),
    [
        ("She read the the report.", "en", "the the"),
        ("He had had enough, that that was clear.", "en", None),
        ("Er kam und und ging.", "de", "und und"),
        ("Das, was das das Haus kostet.", "de", None),
        ("Vous vous levez.", "fr", None),
        ("Bread rests , then rises.", "en", " ,"),
        ("Well ... it rises.", "en", None),
        ("BREAD NEEDS A NIGHT OF REST TODAY", "en", "BREAD NEEDS A NIGHT OF REST TODAY"),
        ("NATO and UNESCO agree on bread.", "en", None),
        ("NATO, UNESCO, UNICEF, OECD", "en", None),
        (
            "It rests. THIS IS WHAT BAKERS HAVE ALWAYS SAID HERE. And it rises in the morning.",
            "en",
            "THIS IS WHAT BAKERS HAVE ALWAYS SAID HERE.",
        ),
        ("I I think so.", "en", "I I"),
        ("What ? No.", "en", " ?"),
        ("Quoi ? Non !", "fr", None),
        ("« Le pain » , dit-il.", "fr", " ,"),
        ("Хлеб и и вода.", "ru", "и и"),
        ("Çay ve ve simit.", "tr", "ve ve"),
        ("パン 、そして水。", "ja", " 、"),
    ],
)
def test_slips_are_found_where_they_are(text: str, locale: str, found: str | None) -> None:
    rejection = checks.slip(text, locale)
    assert (rejection and rejection.span and text[slice(*rejection.span)]) == found


def test_words_that_no_dictionary_has_are_counted_in_longer_texts() -> None:
    gibberish = "der wasserel hat die brunde gefelt und seine molken an jedem stanker vergrutzt weil niemand "
    sense = "der Bäcker lässt den Teig über Nacht ruhen und verkauft jeden Morgen frische Brote an seine Nachbarn "
    long = " ".join([gibberish * 4, sense])
    assert checks.unknown_words(long, "", "de-DE") is not None
    assert checks.unknown_words(sense * 6, "", "de") is None
    assert checks.unknown_words(gibberish, "", "de") is None
    assert checks.unknown_words(long, long, "de") is None
    assert checks.unknown_words(long, "", "th") is None


@pytest.mark.parametrize(
    "text",
    [
        "A Dutch-Belgian team built it.",
        "A Belgian-led group of Swiss and Turkish engineers.",
        "An Anglo-Dutch company and the Poles won.",
    ],
)
def test_nationalities_are_no_names_in_any_combination(text: str) -> None:
    assert checks.new_name(text, "The firm works in the Netherlands.", "en") is None
    assert checks.new_name("The Acme-Belgian team built it.", "The firm works there.", "en") is not None


@pytest.mark.parametrize(
    "text",
    [
        "Read how: https://x.org/bread",
        "Read more at https://x.org/bread",
        "Bread rests. 👉 www.x.org",
        "Bread rests 🍞",
        "Bread rests 1️⃣",
        "Bread rests! (via @baker)",
        "Bread rests [link]",
        "More on bread.example.com",
        "More at example.de/bread?night=1",
    ],
)
def test_a_post_may_end_with_a_link_or_an_emoji(text: str) -> None:
    assert checks.unfinished("text", text, "en") is None


@pytest.mark.parametrize(
    ("locale", "phrase", "text", "found"),
    [
        ("en", "synergy", "They look for synergies.", True),
        ("en", "game changer", "Two real game changers.", True),
        ("de", "revolutionär", "Ein revolutionärer Teig.", True),
        ("en", "price", "It is precious.", False),
        ("en", "art", "The arts are free.", False),
        ("en", "delve into", "He delves into it.", True),
        ("en", "cutting edge", "A cutting-edge tool.", True),
        ("en", "synergies", "A synergy.", True),
        ("en", "product", "They produce bread.", False),
        ("en", "import", "It is important.", False),
        ("fr", "révolutionner", "Cela révolutionne tout.", True),
        ("es", "revolucionar", "Esto revoluciona todo.", True),
        ("it", "rivoluzionario", "Idee rivoluzionarie.", True),
        ("ko", "혁신", "혁신적인 제품을 만든다.", True),
        ("ar", "ثورة", "هذه هي الثورة.", True),
        ("zh", "革命性", "革命性的产品", True),
    ],
)
def test_a_banned_phrase_is_found_inflected(locale: str, phrase: str, text: str, found: bool) -> None:
    assert (checks.banned(text, [phrase], locale) is not None) is found


def test_a_mention_may_be_inflected() -> None:
    assert checks.mentions("Die Lastenradförderung läuft aus.", ["Lastenrad"], "de") is None
    assert checks.mentions("Wärmepumpenhersteller melden Rekorde.", ["Wärmepumpe"], "de") is None
    assert checks.mentions("Les nouvelles lignes.", ["nouvelle ligne"], "fr") is None
    assert checks.mentions("Flere ladcykler.", ["ladcykel"], "da") is None
    assert checks.mentions("Zwei Lastenräder stehen da.", ["Lastenrad"], "de") is None
    assert checks.mentions("Two cargo bikes and a van.", ["cargo bike"], "en") is None
    missing = checks.mentions("Two bikes.", ["cargo bike", "bike"], "en")
    assert missing is not None
    assert missing.detail == "does not mention 'cargo bike'"
