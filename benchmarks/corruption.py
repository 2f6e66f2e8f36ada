"""Good labelled texts with one fault each, made by rule: thousands of bad texts that cost no editor's time.

Each corruption takes a passage of a good artifact, its source and its language, and returns the passage with one fault,
or None where it finds nothing to change. What a validator makes of them tells which faults it can be relied on for, and
what a threshold costs in good texts. Which passage is chosen, and which number in it, follows from the text's id.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from thothy_ai.jobs.api.verdict import RejectionReason
from thothy_ai.jobs.evaluation.labelled import LabelledText

Corruption = Callable[["Passage"], str | None]
_PATHS: Mapping[str, tuple[str, ...]] = {
    "trend_summary": ("title", "standfirst", "key_points.point", "why_it_matters"),
    "hook": ("variants.text",),
    "translation": ("text",),
    "report_section": ("body",),
    "report": ("summary", "sections.body"),
}
_NUMBER = re.compile(r"(?<![\w.,/:-])\d+(?:[.,]\d+)*(?![\w/:-])")
_WORD = re.compile(r"[^\W\d_]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_MIN_DIGITS = 2


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of a good text, with what a corruption may need to know. `choice` decides where several would do."""

    text: str
    source: str
    language: str
    other_source: str
    choice: random.Random


@dataclass(frozen=True, slots=True)
class Corrupted:
    """A text with one fault, and the name of the corruption that put it there."""

    name: str
    text: LabelledText


def corrupted(texts: Sequence[LabelledText]) -> Iterator[Corrupted]:
    """Every good text once per corruption that changes it."""
    good = [text for text in texts if text.accepted]
    for place, text in enumerate(good):
        other = _other_source(good, place)
        for name, corruption in CORRUPTIONS.items():
            if text.kind == "translation" or name not in OF_TRANSLATIONS:
                yield from _applied(text, name, corruption, other)


def _other_source(good: Sequence[LabelledText], place: int) -> str:
    """A source of the same language that is about something else."""
    mine = good[place]
    others = (each.request["source"] for each in (*good[place + 1 :], *good[:place]) if each.language == mine.language)
    return next((source for source in others if source[:40] != mine.request["source"][:40]), "")


def _applied(text: LabelledText, name: str, corruption: Corruption, other: str) -> Iterator[Corrupted]:
    choice = random.Random(f"{text.id} {name}")
    places = [*_places(text.artifact, text.kind)]
    choice.shuffle(places)
    for path in places:
        before = _at(text.artifact, path)
        source = text.request.get("passage") or text.request["source"]
        after = corruption(Passage(before, source, text.language, other, choice))
        if after and after != before:
            reasons = frozenset({REASONS.get(name, RejectionReason.UNSUPPORTED)})
            bad = replace(text, artifact=_with(text.artifact, path, after), accepted=False, reasons=reasons)
            yield Corrupted(name, bad)
            return


def _places(artifact: Mapping[str, Any], kind: str) -> Iterator[tuple[str | int, ...]]:
    for path in _PATHS[kind]:
        name, _, inner = path.partition(".")
        if not inner:
            yield (name,)
        for number in range(len(artifact[name]) if inner else 0):
            yield (name, number, inner)


def _at(artifact: Mapping[str, Any], path: Sequence[str | int]) -> str:
    value: Any = artifact
    for step in path:
        value = value[step]
    return str(value)


def _with(artifact: Mapping[str, Any], path: Sequence[str | int], text: str) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(artifact))
    holder: Any = copy
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = text
    return copy


def _figures(text: str) -> list[re.Match[str]]:
    """The numbers of two digits or more that are no years."""
    found = (match for match in _NUMBER.finditer(text) if sum(map(str.isdigit, match[0])) >= _MIN_DIGITS)
    return [match for match in found if not re.fullmatch(r"(?:1[5-9]|20|21)\d\d", match[0])]


def _changed(passage: Passage, change: Callable[[str], str | None]) -> str | None:
    figures = [match for match in _figures(passage.text) if change(match[0]) not in {None, match[0]}]
    if not figures:
        return None
    match = passage.choice.choice(figures)
    return passage.text[: match.start()] + str(change(match[0])) + passage.text[match.end() :]


def _tenfold(passage: Passage) -> str | None:
    def change(number: str) -> str:
        decimal = re.fullmatch(r"(\d+)[.,](\d{1,2})", number)
        return f"{decimal[1]}{decimal[2]}" if decimal and decimal[1] != "0" else f"{number}0"

    return _changed(passage, change)


def _transposed(passage: Passage) -> str | None:
    def change(number: str) -> str | None:
        return next(
            (
                number[:at] + number[at + 1] + number[at] + number[at + 2 :]
                for at in range(len(number) - 1)
                if number[at : at + 2].isdigit() and number[at] != number[at + 1] and number[at + 1] != "0"
            ),
            None,
        )

    return _changed(passage, change)


def _another_number(passage: Passage) -> str | None:
    def change(number: str) -> str:
        return "".join(passage.choice.choice("123456789") if char.isdigit() else char for char in number)

    figures = _figures(passage.text)
    if not figures:
        return None
    match = passage.choice.choice(figures)
    return passage.text[: match.start()] + change(match[0]) + passage.text[match.end() :]


def _dropped_number(passage: Passage) -> str | None:
    figures = _figures(passage.text)
    if not figures:
        return None
    match = passage.choice.choice(figures)
    return re.sub(r"  +", " ", passage.text[: match.start()] + passage.text[match.end() :])


def _swapped_figures(passage: Passage) -> str | None:
    figures = _figures(passage.text)
    if len({match[0] for match in figures}) < 2:
        return None
    first = figures[0]
    second = next(match for match in figures if match[0] != first[0])
    text = passage.text
    return text[: first.start()] + second[0] + text[first.end() : second.start()] + first[0] + text[second.end() :]


def _reversed(passage: Passage) -> str | None:
    return _replaced(passage, _tables().get("opposites", {}).get(passage.language, []), both_ways=True)


def _negated(passage: Passage) -> str | None:
    return _replaced(passage, _tables().get("negations", {}).get(passage.language, []))


def _other_unit(passage: Passage) -> str | None:
    pairs = [pair for language in (passage.language, "any") for pair in _tables()["units"].get(language, [])]
    return _replaced(passage, pairs, before=r"(?<=\d)[\s\u00a0]?")


def _replaced(
    passage: Passage, pairs: Sequence[Sequence[str]], *, both_ways: bool = False, before: str = ""
) -> str | None:
    """The passage with one word of a pair in the place of the other one."""
    spaced = passage.language not in {"zh", "ja", "th", "ko"}
    for one, other in [*pairs, *((other, one) for one, other in pairs if both_ways)]:
        left = before or (r"(?<!\w)" if spaced else "")
        match = re.search(rf"{left}{re.escape(one)}" + (r"(?!\w)" if spaced else ""), passage.text)
        if match:
            start = match.end() - len(one)
            return passage.text[:start] + other + passage.text[match.end() :]
    return None


def _another_name(passage: Passage) -> str | None:
    """Another plausible name in the place of one that the source has, in scripts with capitals."""
    inside = re.compile(r"(?<=[^\W\d_] )[^\W\d_a-zа-яё][^\W\d_]{3,}")
    names = [match for match in inside.finditer(passage.text) if match[0][1:].islower()]
    known = [match for match in names if re.search(rf"(?<=[^\W\d_] ){match[0]}\b", passage.source)]
    common = passage.language == "de" or not known
    if common or not known[0][0][0].isupper():
        return None
    match = passage.choice.choice(known)
    script = "ru" if re.match("[а-яё]", match[0], re.IGNORECASE) else "el" if "α" <= match[0][1] <= "ω" else "en"
    other = next(name for name in _tables()["names"][script] if name not in passage.source)
    return passage.text[: match.start()] + other + passage.text[match.end() :]


def _famous_name(passage: Passage) -> str | None:
    """A sentence that says that a company that everybody knows has a part in it."""
    sentence = _tables()["famous"].get(passage.language)
    return f"{passage.text} {sentence}" if sentence and len(passage.text) > 60 else None


def _foreign_passage(passage: Passage) -> str | None:
    """The text of another source in the place of the passage."""
    parts = _SENTENCE_END.split(passage.other_source)
    return " ".join(parts[1:3])[: max(len(passage.text), 60)].rpartition(" ")[0] + "." if len(parts) > 3 else None


def _copied(passage: Passage) -> str | None:
    sentences = [part for part in _SENTENCE_END.split(passage.source) if len(part) > 60]
    return passage.choice.choice(sentences).strip() if sentences and len(passage.text) > 60 else None


def _cut_off(passage: Passage) -> str | None:
    words = passage.text.split()
    return " ".join(words[: len(words) * 2 // 3]).rstrip(".!?,;:") if len(words) > 9 else None


def _lost_sentence(passage: Passage) -> str | None:
    parts = _SENTENCE_END.split(passage.text)
    return "".join(parts[:1]) if len(parts) > 2 else None


@cache
def _tables() -> dict[str, Any]:
    folder = Path(__file__).parents[1] / "tests" / "data"
    tables: dict[str, Any] = json.loads((folder / "corruptions.json").read_text(encoding="utf-8"))
    return tables


CORRUPTIONS: Mapping[str, Corruption] = {
    "a figure ten times as large": _tenfold,
    "two digits transposed": _transposed,
    "another number": _another_number,
    "another unit": _other_unit,
    "two figures exchanged": _swapped_figures,
    "direction reversed": _reversed,
    "negation added": _negated,
    "another name": _another_name,
    "a famous company added": _famous_name,
    "a passage about something else": _foreign_passage,
    "a sentence of the source": _copied,
    "cut off": _cut_off,
    "a number left out": _dropped_number,
    "sentences left out": _lost_sentence,
}
OF_TRANSLATIONS = frozenset({"a number left out", "sentences left out"})
REASONS: Mapping[str, RejectionReason] = {
    "a figure ten times as large": RejectionReason.NUMBER_NOT_IN_SOURCE,
    "two digits transposed": RejectionReason.NUMBER_NOT_IN_SOURCE,
    "another number": RejectionReason.NUMBER_NOT_IN_SOURCE,
    "a number left out": RejectionReason.NUMBER_NOT_IN_SOURCE,
    "another unit": RejectionReason.CONTRADICTS_SOURCE,
    "two figures exchanged": RejectionReason.CONTRADICTS_SOURCE,
    "direction reversed": RejectionReason.CONTRADICTS_SOURCE,
    "negation added": RejectionReason.CONTRADICTS_SOURCE,
    "another name": RejectionReason.NAME_NOT_IN_SOURCE,
    "a famous company added": RejectionReason.NAME_NOT_IN_SOURCE,
    "a passage about something else": RejectionReason.OFF_TOPIC,
    "a sentence of the source": RejectionReason.COPIED_FROM_SOURCE,
    "cut off": RejectionReason.TRUNCATED,
    "sentences left out": RejectionReason.TOO_SHORT,
}
