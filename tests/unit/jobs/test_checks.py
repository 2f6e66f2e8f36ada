"""Each check: texts that it accepts and texts that it rejects."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thothy_ai.jobs import Message, RejectionReason, checks
from thothy_ai.jobs.verdict import Rejection

ENGLISH = "Cargo bikes are replacing the second car. Most families ask whether two children and a crate of water fit."
GERMAN = (
    "Lastenräder ersetzen das zweite Auto. Die meisten Familien fragen, ob zwei Kinder und eine Kiste Wasser passen."
)
FRENCH = "Les vélos cargo remplacent la deuxième voiture. La plupart des familles demandent si deux enfants y tiennent."
TEXTS = {"en": ENGLISH, "de": GERMAN, "fr": FRENCH}


def reason(finding: Rejection | None) -> RejectionReason | None:
    return finding.reason if finding else None


@pytest.mark.parametrize("written", TEXTS)
@pytest.mark.parametrize("requested", TEXTS)
def test_language(written: str, requested: str) -> None:
    found = reason(checks.wrong_language(TEXTS[written], requested))
    assert found is (None if written == requested else RejectionReason.WRONG_LANGUAGE)


@pytest.mark.parametrize(
    ("text", "locale"),
    [
        ("Mehr Rad, weniger Blech", "de"),
        ("The bar that serves no alcohol", "en"),
        ("Le vélo qui remplace la voiture", "fr"),
        ("Der Startup-Hub bietet Coworking und ein Newsletter-Tool für Founder.", "de-AT"),
        ("Cyklen erstatter den anden bil i mange familier.", "da"),
        ("発酵食品の人気が高まっています。", "ja"),
        ("OK!", "de"),
        ("2.400 km", "fr"),
    ],
)
def test_language_accepts(text: str, locale: str) -> None:
    assert checks.wrong_language(text, locale) is None


def test_language_rejects_a_text_that_switches_language() -> None:
    mixed = f"Lastenräder ersetzen das zweite Auto. {ENGLISH}"
    assert reason(checks.wrong_language(mixed, "de")) is RejectionReason.WRONG_LANGUAGE
    finding = checks.wrong_language(ENGLISH, "de-CH")
    assert finding
    assert finding.detail.startswith("expected German, detected English (")


def test_the_detector_is_thread_safe() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda locale: checks.wrong_language(TEXTS[locale], locale), list(TEXTS) * 20))
    assert found == [None] * 60


@pytest.mark.parametrize(
    "text",
    [
        "very very very very good",
        "So good!!!!!",
        "Aaaaaaah, what a day it was.",
        "The bar is changing its routine. It is so. The bar is changing its routine.",
        "In the heart of the city, in the heart of the market, in the heart of the town.",
        "Der Markt wächst sehr schnell. Der Markt wächst sehr schnell.",
        "C'est la vie de tous. C'est la vie de tous.",
    ],
)
def test_repetition_rejects(text: str) -> None:
    assert reason(checks.repetition(text)) is RejectionReason.REPETITION


@pytest.mark.parametrize(
    "text", [*TEXTS.values(), "That that is, is.", "Yes. No. Yes. No.", "1,000,000 and 100000 more", ""]
)
def test_repetition_accepts(text: str) -> None:
    assert checks.repetition(text) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It ends here.", None),
        ("Does it end?", None),
        ("“It ends here.”", None),
        ("It costs 2.60 euros.", None),
        ("終わりです。", None),
        ("It ends in a", RejectionReason.TRUNCATED),
        ("It ends, ", RejectionReason.TRUNCATED),
        ("This sentence has run into the bound that its own grammar has set.", RejectionReason.TRUNCATED),
        ("The last word is that of Dr.", RejectionReason.TRUNCATED),
        ("Das gilt z. B.", RejectionReason.TRUNCATED),
    ],
)
def test_unfinished(text: str, found: RejectionReason | None) -> None:
    assert reason(checks.unfinished("text", text, max_sentence_chars=70)) is found


@pytest.mark.parametrize(
    ("text", "found"),
    [("Cabbage waits.", None), ("7", None), ("…!?", RejectionReason.EMPTY), ("", RejectionReason.EMPTY)],
)
def test_empty(text: str, found: RejectionReason | None) -> None:
    assert reason(checks.empty("text", text)) is found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("one two three", None),
        ("l'été d'avant était", None),
        ("one", RejectionReason.TOO_SHORT),
        ("one two three four five", RejectionReason.TOO_LONG),
    ],
)
def test_words(text: str, found: RejectionReason | None) -> None:
    assert reason(checks.words("text", text, 2, 4)) is found


@pytest.mark.parametrize(
    ("length", "found"), [(100, None), (29, RejectionReason.TOO_SHORT), (161, RejectionReason.TOO_LONG)]
)
def test_length_ratio(length: int, found: RejectionReason | None) -> None:
    assert reason(checks.length_ratio("text", "x" * length, "y" * 100, 0.3, 1.6)) is found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cargo bikes are replacing the SECOND car", RejectionReason.COPIED_FROM_SOURCE),
        ("Cargo bikes!", RejectionReason.COPIED_FROM_SOURCE),
        ("He says: Most families ask whether two children and more.", RejectionReason.COPIED_FROM_SOURCE),
        ("Families replace the second car, and the bikes are full of water.", None),
        ("Most families ask whether", RejectionReason.COPIED_FROM_SOURCE),
        ("Cargo bike", None),
        ("", None),
    ],
)
def test_copied(text: str, found: RejectionReason | None) -> None:
    assert reason(checks.copied("text", text, ENGLISH, run=5)) is found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A hook about the text above, for readers.", RejectionReason.PROMPT_ECHO),
        ("Cargo bikes are replacing the second car.", None),
        ("About bikes.", None),
    ],
)
def test_echo(text: str, found: RejectionReason | None) -> None:
    prompt = [Message("user", f"{ENGLISH}\n\nWrite about the text above.")]
    assert reason(checks.echo(text, prompt, ENGLISH)) is found


NUMBERS = (
    "Sales rose by 12.5 percent to 1,200 bikes in 2021; three shops sold 40,000 euros worth, and fourteen people came."
)


@pytest.mark.parametrize(
    "text",
    [
        "1,200 bikes",
        "1.200 Räder",
        "1 200 vélos",
        "12,5 %",
        "In 2021.",
        "3 shops",
        "14 people",
        "40000 euros",
        "no number",
    ],
)
def test_numbers_of_the_source(text: str) -> None:
    assert checks.new_number(text, NUMBERS) is None


@pytest.mark.parametrize("text", ["In 2022, 3 shops", "120 bikes", "4 shops", "a 25% rise"])
def test_numbers_not_in_the_source(text: str) -> None:
    assert reason(checks.new_number(text, NUMBERS)) is RejectionReason.NUMBER_NOT_IN_SOURCE


@pytest.mark.parametrize(
    ("text", "locale", "found"),
    [
        ("Families replace their second car by a bike.", "en", None),
        ("The Amazon rainforest is a land of endless possibilities.", "en", RejectionReason.OFF_TOPIC),
        ("Der Regenwald ist ein Land der Möglichkeiten.", "de", None),
        ("It is so.", "en", None),
    ],
)
def test_off_topic(text: str, locale: str, found: RejectionReason | None) -> None:
    assert reason(checks.off_topic(text, ENGLISH, locale, min_share=0.35)) is found


def test_only_what_no_other_attempt_can_fix_is_final() -> None:
    assert [reason for reason in RejectionReason if not reason.retryable] == [RejectionReason.PROMPT_TOO_LONG]


@given(text=st.text(max_size=300), other=st.text(max_size=300), locale=st.sampled_from(["de", "en", "ja", "no"]))
@settings(max_examples=60, deadline=None)
def test_checks_never_raise(text: str, other: str, locale: str) -> None:
    checks.wrong_language(text, locale)
    checks.off_topic(text, other, locale, 0.3)
    checks.repetition(text)
    checks.unfinished("text", text, 50)
    checks.empty("text", text)
    checks.words("text", text, 1, 10)
    checks.length_ratio("text", text, other, 0.5, 2)
    checks.copied("text", text, other, 4)
    checks.new_number(text, other)
