"""A trend summary by a small model: a task of one sentence per part, and a passage of the source per point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from thothy_ai.jobs.evidence import evidence
from thothy_ai.jobs.kinds.trend_summary.values import TrendSummary, TrendSummaryArtifact
from thothy_ai.jobs.plans import small_models
from thothy_ai.jobs.plans.parts import Part, PartCall, PartFault, Values, Writing
from thothy_ai.jobs.prompts import mention
from thothy_ai.jobs.schema import grammar_schema
from thothy_ai.jobs.text.language import language

# Parts about a passage go first, since their failure is cheap; then one part that needs the whole source.
_STAGES: Final[Mapping[Part, int]] = {("key_points", 0): 0, ("standfirst",): 2}
_OTHER_POINTS, _LAST = 1, 3
_CONFIDENCE: Final[Mapping[str, Any]] = grammar_schema(TrendSummaryArtifact)["properties"]["confidence"]


def write(writing: Writing[TrendSummary]) -> Sequence[PartCall]:
    """One call per part, and per key point."""
    points = [("key_points", number) for number in range(writing.request.points[0])]
    return _pieces(writing, (("title",), ("standfirst",), *points, ("why_it_matters",), ("tags",)), again=False)


def rewrite(writing: Writing[TrendSummary], values: Values, faults: Sequence[PartFault]) -> Sequence[PartCall]:
    """Calls for the faulty parts; missing key points replace a fault of the list."""
    parts = dict.fromkeys(fault.part for fault in faults)
    lacking = range(len(values.get("key_points", ())), writing.request.points[0])
    points: list[Part] = [("key_points", number) for number in lacking] if ("key_points",) in parts else []
    return _pieces(writing, [part for part in parts if part != ("key_points",)] + points, again=True)


def evidence_for(text: str, writing: Writing[TrendSummary], number: int) -> str:
    """The span of the source that supports a point, since a small model does not choose it. Across languages, which
    share no words, it is the passage that the model was shown.
    """
    request = writing.request
    if found := evidence(text, request.source, request.locale):
        return found
    if language(request.source) in {None, request.locale.partition("-")[0]}:
        return ""
    return small_models.passage(writing.source, request.locale, number, request.points[0])[0]


def _pieces(writing: Writing[TrendSummary], parts: Sequence[Part], *, again: bool) -> Sequence[PartCall]:
    readers, locale, source = writing.request.audience, writing.request.locale, writing.source
    summarize = f"Summarize the text above for {readers} in one sentence."
    lead = summarize + mention(writing.request)
    explain = f"Explain to {readers} in one sentence why this trend matters."
    tags = {"type": "array", "items": small_models.headline(locale, 1, 2), "minItems": 2, "maxItems": 3}
    title = small_models.headline(locale, 3, 12, source)
    asked: dict[Part, tuple[str, Mapping[Part, Mapping[str, Any]]]] = {
        ("title",): ("Write a headline for the text above.", {("title",): title}),
        ("standfirst",): (lead, {("standfirst",): small_models.sentence(locale, 40, 120, source)}),
        ("why_it_matters",): (explain, {("why_it_matters",): small_models.sentence(locale, 40, 110, source)}),
        ("tags",): ("List two or three tags for the text above.", {("tags",): tags, ("confidence",): _CONFIDENCE}),
    }
    points = writing.request.points[0]
    passages = {number: " ".join(small_models.passage(source, locale, number, points)) for number in range(points)}
    for number, passage in passages.items():
        point = small_models.of_parts({("point",): small_models.sentence(locale, 30, 110, passage)})
        asked["key_points", number] = (summarize, {("key_points", number): point})
    pieces = []
    for part in dict.fromkeys(("tags",) if part[0] == "confidence" else part for part in parts):
        if part in asked:
            is_point = part[0] == "key_points"
            stage = _STAGES.get(part, _OTHER_POINTS if is_point else _LAST)
            shown = passages[int(part[1])] if is_point else ""
            pieces.append(small_models.piece(writing, *asked[part], again=again, stage=stage, shown=shown))
    return pieces
