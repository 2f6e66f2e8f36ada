"""Words and sentences in many scripts."""

from __future__ import annotations

import pytest
from icu4py.breakers import WordBreaker

from thothy_ai.jobs.checks.segments import is_spaced, runs, scaled, sentences, words


@pytest.mark.parametrize(
    ("text", "locale", "count"),
    [
        ("He lives in the U.S. now.", "en", 6),
        ("l'été d’avant était", "fr", 3),
        ("Ground-breaking 3.5 % growth", "en", 4),
        ("2023年，中国新能源汽车销量达到21.2万辆。", "zh", 11),
        ("ประเทศไทยมีประชากรเจ็ดสิบล้านคน", "th", 7),
        ("발효 식품의 인기가 높아지고 있습니다.", "ko", 5),
        ("बिक्री 12 लाख तक बढ़ी।", "hi", 5),
        ("ارتفعت المبيعات بنسبة ١٫٥٪", "ar", 4),
        ("… — !?", "en", 0),
        ("", "en", 0),
    ],
)
def test_words(text: str, locale: str, count: int) -> None:
    assert len(words(text, locale)) == count


@pytest.mark.parametrize(
    ("text", "locale", "parts"),
    [
        ("Yes. No! Why?", "en", ["Yes.", "No!", "Why?"]),
        ("Dr. Smith came from the U.S. in 2020. He left.", "en", ["Dr. Smith came from the U.S. in 2020.", "He left."]),
        ("„Gut.“ »Ja?« Nein.", "de", ["„Gut.“", "»Ja?«", "Nein."]),
        ("Das sind z. B. Räder. Gut.", "de", ["Das sind z. B. Räder.", "Gut."]),
        ("“Really?” asked the man. Yes.", "en", ["“Really?” asked the man.", "Yes."]),
        ("他说：“很好。”然后走了。", "zh", ["他说：“很好。”", "然后走了。"]),
        ("人気です。「はい。」次です。", "ja", ["人気です。", "「はい。」", "次です。"]),
        ("यह अच्छा है। वह नहीं।", "hi", ["यह अच्छा है।", "वह नहीं।"]),
        ("هل هذا صحيح؟ نعم.", "ar", ["هل هذا صحيح؟", "نعم."]),
        ("First line\nsecond line.", "en", ["First line", "second line."]),
        ("Wait… what?", "en", ["Wait… what?"]),
        ("It costs 2.60 euros.", "en", ["It costs 2.60 euros."]),
    ],
)
def test_sentences(text: str, locale: str, parts: list[str]) -> None:
    assert list(sentences(text, locale)) == parts


def test_runs() -> None:
    assert runs(["a", "b", "c"], 2) == [("a", "b"), ("b", "c")]
    assert runs(["a"], 2) == []


def test_a_limit_in_english_words_is_converted() -> None:
    assert [scaled(10, locale) for locale in ("en", "de", "ja", "ko", "zh-TW")] == [10, 10, 16, 7, 12]
    assert scaled(10, "ko", shrink=False) == 10


def test_scripts_without_spaces() -> None:
    assert [is_spaced(char) for char in "aя한ع漢かไ- "] == [True, True, True, True, False, False, False, False, False]


def test_sentences_do_not_displace_the_text_that_they_are_compared_with(monkeypatch: pytest.MonkeyPatch) -> None:
    divided: list[str] = []

    def word_breaker(text: str, locale: str) -> WordBreaker:
        divided.append(text)
        return WordBreaker(text, locale)

    monkeypatch.setattr("icu4py.breakers.WordBreaker", word_breaker)
    source = "A text of several sentences, none of which is long. " * 9
    for number in range(100):
        words(f"Sentence {number} of many.", "en")
        words(source, "en")
    assert divided.count(source) == 1
