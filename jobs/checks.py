"""Validators: pure functions that take a text and return a `Rejection`, or None if it passes. Kinds compose them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from thothy_ai.jobs import language as detect
from thothy_ai.jobs.locales import language_of
from thothy_ai.jobs.plan import Message
from thothy_ai.jobs.text import counted
from thothy_ai.jobs.verdict import Rejection, RejectionReason

_WORD = re.compile(r"\w+(?:['’]\w+)?")
_NUMBER = re.compile(r"\d+(?:[.,' ’]\d{3})*(?:[.,]\d+)?")
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])[\"”’»)]*\s+|(?<=[。！？])")
_STUTTER = re.compile(r"([^\W\d])\1{4,}|([^\w\s])\2{3,}|\b(\w+)(?:\W+\3\b){3,}", re.IGNORECASE)
_NUMBER_WORDS = {
    word: str(value)
    for value, word in [
        *enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), start=1),
        *enumerate(("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen"), start=11),
        *((17, "seventeen"), (18, "eighteen"), (19, "nineteen"), (20, "twenty"), (30, "thirty"), (40, "forty")),
        *((50, "fifty"), (60, "sixty"), (70, "seventy"), (80, "eighty"), (90, "ninety"), (100, "hundred")),
    ]
}
_CLOSING = "\"'”’») "
_ENDINGS = (".", "!", "?", "。", "！", "？")
_ABBREVIATED = re.compile(r"\b(?:Dr|Mrs?|Ms|Prof|St|No|Nr|vs|e\.g|i\.e|ca|approx|z\. ?B|bzw|d\. ?h)\.$")


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def sentences(text: str) -> list[str]:
    """Split text into sentences, approximately: abbreviations split too."""
    return [part.strip() for part in _SENTENCE_END.split(text) if part and part.strip()]


def empty(field: str, text: str) -> Rejection | None:
    """Reject a text without a letter or digit."""
    return None if _WORD.search(text) else Rejection(RejectionReason.EMPTY, f"{field} has no words")


def words(field: str, text: str, min_words: int, max_words: int) -> Rejection | None:
    """Reject a text with too few or too many words."""
    count = len(_words(text))
    has = f"{field} has {counted(count, 'word')}"
    if count < min_words:
        return Rejection(RejectionReason.TOO_SHORT, f"{has}, fewer than {min_words}")
    if count > max_words:
        return Rejection(RejectionReason.TOO_LONG, f"{has}, more than {max_words}")
    return None


def length_ratio(field: str, text: str, original: str, min_ratio: float, max_ratio: float) -> Rejection | None:
    """Reject a text whose length in characters is out of proportion to the original it renders."""
    ratio = len(text) / max(len(original), 1)
    if ratio < min_ratio:
        return Rejection(RejectionReason.TOO_SHORT, f"{field} is {ratio:.2f} times as long as the original")
    if ratio > max_ratio:
        return Rejection(RejectionReason.TOO_LONG, f"{field} is {ratio:.2f} times as long as the original")
    return None


def unfinished(field: str, text: str, max_sentence_chars: int) -> Rejection | None:
    """Reject a text that stops in mid-sentence, or has a sentence that the grammar's length limit cut off."""
    parts = sentences(text)
    ended = text.rstrip(_CLOSING).endswith(_ENDINGS) and not _ABBREVIATED.search(text)
    if ended and all(len(part) < max_sentence_chars - 8 for part in parts):
        return None
    return Rejection(RejectionReason.TRUNCATED, f"{field} stops in mid-sentence: …{text[-30:]!r}")


def repetition(text: str) -> Rejection | None:
    """Reject loops: a stutter, a sentence of four words or more used twice, or a run of four words used three times."""
    if stutter := _STUTTER.search(text):
        return Rejection(RejectionReason.REPETITION, f"stutters: {stutter[0][:60]!r}")
    long_sentences = [tuple(part) for part in map(_words, sentences(text)) if len(part) >= 4]
    if repeated := _most_common(long_sentences, 2):
        return Rejection(RejectionReason.REPETITION, f"repeats a sentence: {' '.join(repeated)!r}")
    if repeated := _most_common(_runs(_words(text), 4), 3):
        return Rejection(RejectionReason.REPETITION, f"uses a phrase three times: {' '.join(repeated)!r}")
    return None


def _most_common(items: list[tuple[str, ...]], min_count: int) -> tuple[str, ...] | None:
    item, count = Counter(items).most_common(1)[0] if items else ((), 0)
    return item if count >= min_count else None


def _runs(sequence: list[str], length: int) -> list[tuple[str, ...]]:
    return list(zip(*(sequence[start:] for start in range(length)), strict=False))


def wrong_language(text: str, locale: str) -> Rejection | None:
    """Reject a text in a language other than the requested one, as a whole or in over a third of its characters.

    Text with fewer than fifteen letters could be in any language and passes.
    """
    if sum(map(str.isalpha, text)) < 15 or (detect.is_in(text, locale) and _foreign_share(text, locale) <= 1 / 3):
        return None
    detected, confidence = next(iter(detect.confidences(text).items()))
    expected = language_of(locale).name
    return Rejection(
        RejectionReason.WRONG_LANGUAGE, f"expected {expected}, detected {detected.capitalize()} ({confidence:.2f})"
    )


def _foreign_share(text: str, locale: str) -> float:
    """The share of characters in sentences of another language, counting only those of at least 40 characters."""
    parts = sentences(text)
    if len(parts) < 2:
        return 0.0
    foreign = [part for part in parts if len(part) >= 40 and not detect.is_in(part, locale, min_confidence=0.05)]
    return sum(map(len, foreign)) / sum(map(len, parts))


def copied(field: str, text: str, source: str, run: int) -> Rejection | None:
    """Reject a text that shares `run` consecutive words with the source, or all of its words if it has fewer."""
    passage = _shared_run(text, source, min(run, len(_words(text))))
    return Rejection(RejectionReason.COPIED_FROM_SOURCE, f"{field} copies: {passage!r}") if passage else None


def echo(text: str, messages: Iterable[Message], source: str) -> Rejection | None:
    """Reject a text that shares four consecutive words with the instruction, i.e. the prompt without the source."""
    instruction = " ".join(message.content for message in messages).replace(source, "")
    passage = _shared_run(text, instruction, 4)
    return Rejection(RejectionReason.PROMPT_ECHO, f"repeats the instruction: {passage!r}") if passage else None


def _shared_run(text: str, other: str, length: int) -> str | None:
    known = f" {' '.join(_words(other))} "
    runs = map(" ".join, _runs(_words(text), length))
    return next((passage for passage in runs if f" {passage} " in known), None)


def off_topic(text: str, source: str, locale: str, min_share: float) -> Rejection | None:
    """Reject a text if too small a share of its longer words (compared by prefix) is in the source.

    Passes if the source is in a language other than that of the locale.
    """
    if not detect.is_in(source[:400], locale):
        return None
    prefixes = {word[:5] for word in _words(text) if len(word) >= 5}
    known = {word[:5] for word in _words(source)}
    share = len(prefixes & known) / max(len(prefixes), 1)
    if not prefixes or share >= min_share:
        return None
    return Rejection(RejectionReason.OFF_TOPIC, f"only {share:.0%} of its longer words are in the source")


def new_number(text: str, source: str) -> Rejection | None:
    """Reject a number that is not in the source. Separators are ignored (1,200 equals 1.200); "three" counts as 3."""
    known = _numbers(source) | {_NUMBER_WORDS[word] for word in _words(source) if word in _NUMBER_WORDS}
    for match in _NUMBER.finditer(text):
        if _digits(match[0]) not in known:
            return Rejection(RejectionReason.NUMBER_NOT_IN_SOURCE, f"{match[0]!r} is not in the source")
    return None


def _numbers(text: str) -> set[str]:
    return {_digits(match[0]) for match in _NUMBER.finditer(text)}


def _digits(number: str) -> str:
    return "".join(filter(str.isdigit, number))
