"""A trend summary by a small model: a task of one sentence per part, and a passage of the source per point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.plans import small_models as plain
from thothy_ai.jobs.plans.parts import Part, Piece, Writing

# What is about a passage costs least if it fails; the first that needs the whole source goes before the rest.
_STAGES: Final[Mapping[Part, int]] = {("key_points", 0): 0, ("standfirst",): 2}
_OTHER_POINTS, _LAST = 1, 3


def summary_pieces(
    writing: Writing[WritingRequest], parts: Sequence[Part], points: int, confidence: Mapping[str, Any], *, again: bool
) -> Sequence[Piece]:
    """A call for each of these parts; `confidence` is the schema of that field, which comes with the tags."""
    readers, locale, source = writing.request.audience, writing.request.locale, writing.source
    summarize = f"Summarize the text above for {readers} in one sentence."
    asked: dict[Part, tuple[str, Mapping[Part, Mapping[str, Any]]]] = {
        ("title",): ("Write a headline for the text above.", {("title",): plain.headline(locale, 3, 12, source)}),
        ("standfirst",): (summarize, {("standfirst",): plain.sentence(locale, 40, 120, source)}),
        ("why_it_matters",): (
            f"Explain to {readers} in one sentence why this trend matters.",
            {("why_it_matters",): plain.sentence(locale, 40, 110, source)},
        ),
        ("tags",): (
            "List two or three tags for the text above.",
            {
                ("tags",): {"type": "array", "items": plain.headline(locale, 1, 2), "minItems": 2, "maxItems": 3},
                ("confidence",): confidence,
            },
        ),
    }
    passages = {number: " ".join(plain.passage(source, locale, number, points)) for number in range(points)}
    for number, passage in passages.items():
        point = plain.of_parts({("point",): plain.sentence(locale, 30, 110, passage)})
        asked["key_points", number] = (summarize, {("key_points", number): point})
    wanted = dict.fromkeys(("tags",) if part[0] == "confidence" else part for part in parts)
    return [
        plain.piece(writing, *asked[part], again=again, stage=_stage(part), shown=_shown(part, passages))
        for part in wanted
        if part in asked
    ]


def _stage(part: Part) -> int:
    return _STAGES.get(part, _OTHER_POINTS if part[0] == "key_points" else _LAST)


def _shown(part: Part, passages: Mapping[int, str]) -> str:
    return passages[int(part[1])] if part[0] == "key_points" else ""
