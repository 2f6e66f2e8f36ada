"""Validators: small pure functions from a text to a finding, or None. Kinds compose them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from thothy_ai.jobs import language as detect
from thothy_ai.jobs.kind import Message
from thothy_ai.jobs.locales import language_of
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
    """Split running text into sentences, roughly: abbreviations split too."""
    return [part.strip() for part in _SENTENCE_END.split(text) if part and part.strip()]


def empty(field: str, text: str) -> Rejection | None:
    """Find a text without a single letter or digit."""
    return None if _WORD.search(text) else Rejection(RejectionReason.EMPTY, f"{field} has no words")


def words(field: str, text: str, fewest: int, most: int) -> Rejection | None:
    """Find a text with too few or too many words."""
    count = len(_words(text))
    if count < fewest:
        return Rejection(RejectionReason.TOO_SHORT, f"{field} has {count} words, fewer than {fewest}")
    if count > most:
        return Rejection(RejectionReason.TOO_LONG, f"{field} has {count} words, more than {most}")
    return None


def length_ratio(field: str, text: str, original: str, least: float, most: float) -> Rejection | None:
    """Find a text much shorter or much longer, in characters, than the one it renders."""
    ratio = len(text) / max(len(original), 1)
    if ratio < least:
        return Rejection(RejectionReason.TOO_SHORT, f"{field} has {ratio:.2f} of the original's length")
    if ratio > most:
        return Rejection(RejectionReason.TOO_LONG, f"{field} has {ratio:.2f} times the original's length")
    return None


def unfinished(field: str, text: str, longest: int) -> Rejection | None:
    """Find a text that stops in mid-sentence, or that was stopped: a sentence as long as its grammar lets it be."""
    parts = sentences(text)
    ended = text.rstrip(_CLOSING).endswith(_ENDINGS) and not _ABBREVIATED.search(text)
    if ended and all(len(part) < longest - 8 for part in parts):
        return None
    return Rejection(RejectionReason.TRUNCATED, f"{field} stops in mid-sentence: …{text[-30:]!r}")


def repetition(text: str) -> Rejection | None:
    """Find loops: a stutter, a sentence said twice, or a run of four words said three times."""
    if stutter := _STUTTER.search(text):
        return Rejection(RejectionReason.REPETITION, f"stutters: {stutter[0][:60]!r}")
    spoken = [tuple(said) for said in map(_words, sentences(text)) if len(said) >= 4]
    if repeated := _most_common(spoken, 2):
        return Rejection(RejectionReason.REPETITION, f"says twice: {' '.join(repeated)!r}")
    if repeated := _most_common(_runs(_words(text), 4), 3):
        return Rejection(RejectionReason.REPETITION, f"says three times: {' '.join(repeated)!r}")
    return None


def _most_common(items: list[tuple[str, ...]], least: int) -> tuple[str, ...] | None:
    item, count = Counter(items).most_common(1)[0] if items else ((), 0)
    return item if count >= least else None


def _runs(said: list[str], length: int) -> list[tuple[str, ...]]:
    return list(zip(*(said[start:] for start in range(length)), strict=False))


def wrong_language(text: str, locale: str) -> Rejection | None:
    """Find a text in another language than asked for, as a whole or in more than a third of its sentences.

    Text with fewer than fifteen letters could be in any language and passes.
    """
    if sum(map(str.isalpha, text)) < 15 or (detect.is_in(text, locale) and _foreign_share(text, locale) <= 1 / 3):
        return None
    likeliest, confidence = next(iter(detect.confidences(text).items()))
    wanted = language_of(locale).name
    return Rejection(
        RejectionReason.WRONG_LANGUAGE, f"wanted {wanted}, reads as {likeliest.capitalize()} ({confidence:.2f})"
    )


def _foreign_share(text: str, locale: str) -> float:
    """Share of the characters that stand in sentences, long enough to tell, of another language."""
    parts = sentences(text)
    if len(parts) < 2:
        return 0.0
    foreign = [part for part in parts if len(part) >= 40 and not detect.is_in(part, locale, least=0.05)]
    return sum(map(len, foreign)) / sum(map(len, parts))


def copied(field: str, text: str, source: str, run: int) -> Rejection | None:
    """Find a run of this many words, or the whole text if it is shorter, that stands in the source word for word."""
    passage = _shared_run(text, source, min(run, len(_words(text))))
    return Rejection(RejectionReason.COPIED_FROM_SOURCE, f"{field} copies: {passage!r}") if passage else None


def echo(text: str, messages: Iterable[Message], source: str) -> Rejection | None:
    """Find four words in a row of what the prompt says beside the source."""
    instruction = " ".join(message.content for message in messages).replace(source, "")
    passage = _shared_run(text, instruction, 4)
    return Rejection(RejectionReason.PROMPT_ECHO, f"repeats its instruction: {passage!r}") if passage else None


def _shared_run(text: str, other: str, length: int) -> str | None:
    known = f" {' '.join(_words(other))} "
    runs = map(" ".join, _runs(_words(text), length))
    return next((passage for passage in runs if f" {passage} " in known), None)


def off_topic(text: str, source: str, locale: str, least: float) -> Rejection | None:
    """Find a text few of whose longer words (at least this share is wanted) stand in a source of the same language."""
    if not detect.is_in(source[:400], locale):
        return None
    said = {word[:5] for word in _words(text) if len(word) >= 5}
    known = {word[:5] for word in _words(source)}
    share = len(said & known) / max(len(said), 1)
    if not said or share >= least:
        return None
    return Rejection(RejectionReason.OFF_TOPIC, f"only {share:.0%} of its longer words are in the source")


def new_number(text: str, source: str) -> Rejection | None:
    """Find a number that the source does not have. Separators don't count (1,200 is 1.200); "three" is 3."""
    known = _numbers(source) | {_NUMBER_WORDS[word] for word in _words(source) if word in _NUMBER_WORDS}
    for match in _NUMBER.finditer(text):
        if _digits(match[0]) not in known:
            return Rejection(RejectionReason.NUMBER_NOT_IN_SOURCE, f"the source does not have {match[0]!r}")
    return None


def _numbers(text: str) -> set[str]:
    return {_digits(match[0]) for match in _NUMBER.finditer(text)}


def _digits(number: str) -> str:
    return "".join(filter(str.isdigit, number))
