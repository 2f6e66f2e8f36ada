"""The kind `summary_translation`: a trend summary in another language, field by field, with the evidence it had."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from pydantic import ValidationError

from thothy_ai.jobs import checks
from thothy_ai.jobs.api.kind import JobKind
from thothy_ai.jobs.api.plan import Context, Plan
from thothy_ai.jobs.api.verdict import Place, Rejection, Verdict
from thothy_ai.jobs.kinds.translation import Translation, TranslationArtifact, TranslationPlan
from thothy_ai.jobs.kinds.translation.calls import segment_prompt, small_segment_prompt
from thothy_ai.jobs.kinds.trend_summary.values import (
    SummaryTranslation,
    SummaryTranslationArtifact,
    TrendSummaryArtifact,
)
from thothy_ai.jobs.plans.by_size import BySize
from thothy_ai.jobs.plans.judging import findings_of
from thothy_ai.jobs.plans.outputs import rejection_of

_BREAK = "\n\n"  # between fields; a translation keeps its paragraphs, and a field is on one line


@dataclass(frozen=True)
class SummaryTranslationPlan:
    """Translates the fields as the paragraphs of one text, by the plan of translations."""

    plan: TranslationPlan

    def __call__(self, request: SummaryTranslation, context: Context) -> Plan:
        """Translate, and put each paragraph into the field of its original."""
        previous = context.previous
        if previous and previous.artifact:
            try:
                texts_before = SummaryTranslationArtifact.model_validate(previous.artifact).texts
                previous = replace(previous, artifact={"text": _BREAK.join(texts_before.values())})
            except ValidationError:  # its fields are not those of a summary
                previous = replace(previous, artifact={"text": None})
        verdict = yield from self.plan(_passage(request), replace(context, previous=previous))
        if not isinstance(verdict.artifact, TranslationArtifact):
            return verdict
        texts = verdict.artifact.text.split(_BREAK)
        if len(texts) != len(request.summary.texts):
            return replace(verdict, artifact=None)  # rejected, since paragraphs are lost
        values = request.summary.model_dump(mode="json")
        for path, text in zip(request.summary.texts, texts, strict=True):
            *above, last = path
            part: Any = values
            for key in above:
                part = part[key]
            part[last] = text
        try:
            artifact = SummaryTranslationArtifact.model_validate(values)
        except ValidationError as error:
            return Verdict.reject(rejection_of(error))
        tags = findings_of(_tags(request, artifact), artifact.model_dump(mode="json"), request.target_locale)
        # Move a finding on the joined text to the field in which it begins.
        places = [each.place and _field(artifact, *each.place[1:]) for each in verdict.findings]
        placed = (replace(each, place=place) for each, place in zip(verdict.findings, places, strict=True))
        return replace(verdict, artifact=artifact, findings=(*placed, *tags))

    def checks(self, request: SummaryTranslation, artifact: SummaryTranslationArtifact) -> Iterator[Rejection | None]:
        """Faults and doubts of a translation, part by part and as a whole."""
        text = _BREAK.join(artifact.texts.values())
        for found in self.plan.checks(_passage(request), TranslationArtifact(text=text)):
            path, *span = _field(artifact, *found.span) if found and found.span else ("", 0, 0)
            yield found and found._replace(part=path, span=(span[0], span[1]) if path else None)
        yield from _tags(request, artifact)


def _tags(request: SummaryTranslation, artifact: TrendSummaryArtifact) -> Iterator[Rejection]:
    return checks.foreign_tags(artifact.tags, " ".join(request.keep), request.target_locale)


def _passage(request: SummaryTranslation) -> Translation:
    shared = {name: getattr(request, name) for name in Translation.model_fields if name != "passage"}
    return Translation(**shared, passage=_BREAK.join(request.summary.texts.values()))


def _field(artifact: TrendSummaryArtifact, start: int, end: int) -> Place:
    """The place of a span of the joined text: in the field in which it begins."""
    paths, lengths = list(artifact.texts), [len(text) for text in artifact.texts.values()]
    starts = [0, *accumulate(length + len(_BREAK) for length in lengths[:-1])]
    number = bisect_right(starts, start) - 1
    first, last = (min(place - starts[number], lengths[number]) for place in (start, end))
    return Place(".".join(map(str, paths[number])), first, last)


KIND = JobKind(
    name="summary_translation",
    request=SummaryTranslation,
    artifact=SummaryTranslationArtifact,
    plan=BySize(
        SummaryTranslationPlan(TranslationPlan(segment_prompt)),
        small=SummaryTranslationPlan(TranslationPlan(small_segment_prompt)),
    ),
    locale=lambda request: request.target_locale,
    source=lambda request: request.source,
)
