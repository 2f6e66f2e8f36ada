"""A trend summary by a small model: a task of one sentence for each part. What it gets wrong most often comes ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from thothy_ai.jobs import plain
from thothy_ai.jobs.parts import Part, Piece, Writing
from thothy_ai.jobs.requests import WritingRequest

_POINT_TASKS: Final = (  # for a small model, which would say the same again
    "Name one fact of the text above that {audience} should know, in one sentence.",
    "Say in one sentence who in the text above does what.",
    "Explain to {audience} in one sentence why this is happening.",
    "Say to {audience} in one sentence what the difficulty is.",
    "Say to {audience} in one sentence what comes next.",
)
_AHEAD: Final[frozenset[Part]] = frozenset({("standfirst",), ("key_points", 0)})


def summary_pieces(
    writing: Writing[WritingRequest], parts: Sequence[Part], confidence: Mapping[str, Any], *, again: bool
) -> Sequence[Piece]:
    """A call for each of these parts; `confidence` is the schema of that field, which comes with the tags."""
    readers, locale = writing.request.audience, writing.request.locale
    point = plain.of_parts({("point",): plain.sentence(locale, 30, 110)})
    asked: dict[Part, tuple[str, Mapping[Part, Mapping[str, Any]]]] = {
        ("title",): ("Write a headline for the text above.", {("title",): plain.headline(locale, 3, 12)}),
        ("standfirst",): (
            f"Summarize the text above for {readers} in one sentence.",
            {("standfirst",): plain.sentence(locale, 40, 120)},
        ),
        ("why_it_matters",): (
            f"Explain to {readers} in one sentence why this trend matters.",
            {("why_it_matters",): plain.sentence(locale, 40, 110)},
        ),
        ("tags",): (
            "List two or three tags for the text above.",
            {
                ("tags",): {"type": "array", "items": plain.headline(locale, 1, 2), "minItems": 2, "maxItems": 3},
                ("confidence",): confidence,
            },
        ),
    }
    for number, task in enumerate(_POINT_TASKS):
        asked["key_points", number] = (task.format(audience=readers), {("key_points", number): point})
    wanted = dict.fromkeys(("tags",) if part[0] == "confidence" else part for part in parts)
    return [
        plain.piece(writing, *asked[part], again=again, ahead=not again and part in _AHEAD)
        for part in wanted
        if part in asked
    ]
