"""The kind `report`: a document of sections that cite the source, written from an outline, with a summary."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

from pydantic import Field, ValidationError

from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.kind import JobKind
from thothy_ai.jobs.api.plan import Call, Calls, Context, Output, Outputs, Plan
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.api.terms import ShortText
from thothy_ai.jobs.api.verdict import Rejection, Verdict
from thothy_ai.jobs.checks.gates import is_gate
from thothy_ai.jobs.evidence import spans
from thothy_ai.jobs.kinds.report.assignment import Assignment
from thothy_ai.jobs.kinds.report.citing import cited
from thothy_ai.jobs.kinds.report.faults import section_faults
from thothy_ai.jobs.kinds.report.outline import Outline, heading_faults, outline_call, outline_faults, outline_of
from thothy_ai.jobs.kinds.report.small import SmallModelWriter
from thothy_ai.jobs.kinds.report.summary import summarized, summary_faults
from thothy_ai.jobs.kinds.report.values import NO_EVIDENCE, Section, SectionBrief
from thothy_ai.jobs.kinds.report.verifying import summed_up
from thothy_ai.jobs.kinds.report.writer import Writer
from thothy_ai.jobs.plans import retries
from thothy_ai.jobs.plans.by_size import BySize
from thothy_ai.jobs.plans.documents import asked, condensed
from thothy_ai.jobs.plans.judging import findings_of, gate_in, severity, verdict, worst
from thothy_ai.jobs.publishing.piece import Block, Heading, Piece

RESERVE = 3_600  # tokens of the context for instructions and output: the longest outline, or all sections to summarize


class ReportArtifact(Artifact):
    """A report: its sections under headings, and a summary."""

    title: Annotated[str, Field(min_length=1, max_length=200)]
    summary: Annotated[str, Field(max_length=4_000)]  # empty only in a rejected report
    sections: Annotated[tuple[Section, ...], Field(min_length=1, max_length=12)]

    def piece(self, _request: Mapping[str, Any]) -> Piece:
        """The document: the summary, and the sections with their citations."""
        blocks: list[Block] = []
        for section in self.sections:
            blocks += [Heading(section.heading), cited(section)]
        return Piece(title=self.title, standfirst=self.summary, blocks=tuple(blocks))


class Report(WritingRequest[ReportArtifact]):
    """Write a report: an outline, its sections with citations, and a summary."""

    topic: Annotated[ShortText | None, Field(description="What it is about. Default: what the source is about.")] = None
    sections: Annotated[int, Field(ge=3, le=7, description="How many sections it has.")] = 4


class _Start(NamedTuple):
    """Where writing begins: the text to write about, a title, the sections' briefs, and the sections already
    written.
    """

    text: str
    title: str
    briefs: tuple[SectionBrief, ...]
    kept: Mapping[int, Section]


@dataclass(frozen=True)
class ReportPlan:
    """Outlines a report, writes its sections side by side, and summarizes them."""

    writer: Writer

    def __call__(self, request: Report, context: Context) -> Plan:
        """Keep the sound parts of the last attempt, and write the rest."""
        if not spans(request.source, request.locale):
            return Verdict.reject(NO_EVIDENCE)
        start = yield from _kept(request, context)
        if start is None:
            outlined = yield from self._outlined(request, context)
            if isinstance(outlined, Rejection):
                return Verdict.reject(outlined)
            start = outlined
        assignment = Assignment(start.briefs, start.text, request, self.writer)
        written = yield from assignment.written(start.kept, context)
        sections = tuple(section for _, section in sorted(written.sections.items()))
        for rejection in written.rejections.values():
            return self._unfinished(request, start, sections, "", rejection)
        summary = yield from summarized(sections, start.text, request, context, self.writer)
        if summary.rejection:
            return self._unfinished(request, start, sections, summary.text, summary.rejection)
        artifact = ReportArtifact(title=start.title, summary=summary.text, sections=sections)
        of_sections = (found for _, found in sorted(written.verified.items()))
        verified = summed_up((*of_sections, summary.verified))
        return verdict(artifact, self.checks(request, artifact), request.locale, *verified)

    def checks(self, request: Report, artifact: ReportArtifact) -> Iterator[Rejection | None]:
        """Faults and doubts of a report, part by part."""
        text = request.source
        yield from heading_faults(artifact.title, [section.heading for section in artifact.sections], text, request)
        for place, section in enumerate(artifact.sections):
            for found in section_faults(section, text, request, artifact.sections[:place]):
                yield found.at("sections", place, found.part)
        yield from summary_faults(artifact.summary, artifact.sections, text, request)

    def _outlined(self, request: Report, context: Context) -> Generator[Calls, Outputs, _Start | Rejection]:
        instruction = self.writer.outline_instruction(request.sections, request.topic or "", request)

        def call(text: str, fitting: Context) -> Call:
            return outline_call(text, request.sections, instruction, request, fitting)

        def judged(text: str, output: Output) -> tuple[Outline | Rejection, list[Rejection]]:
            outline = outline_of(output, request.sections)
            if isinstance(outline, Rejection):
                return outline, [outline]
            return outline, list(filter(None, outline_faults(outline, text, request)))

        text, output = yield from asked(request.source, context, call, RESERVE)
        outline, found = judged(text, output)
        first = worst(found, request.locale)
        if first and first.reason.retryable and self.writer.repairs_outlines:
            (output,) = yield (replace(call(text, retries.after(context, first)), step="repair"),)
            other, of_other = judged(text, output)
            if severity(of_other, request.locale) <= severity(found, request.locale):
                outline, first = other, worst(of_other, request.locale)
        if first and is_gate(first.reason, request.locale):
            return first
        return outline if isinstance(outline, Rejection) else _Start(text, outline.title, outline.briefs(), {})

    def _unfinished(
        self,
        request: Report,
        start: _Start,
        sections: tuple[Section, ...],
        summary: str,
        rejection: Rejection,
    ) -> Verdict:
        """The verdict on a report that a gate rejects, with the parts that were written."""
        if not sections:
            return Verdict.reject(rejection)
        artifact = ReportArtifact(title=start.title, summary=summary, sections=sections)
        found = filter(None, self.checks(request, artifact))
        findings = findings_of(found, artifact.model_dump(mode="json"), request.locale)
        return Verdict.reject(rejection, artifact, findings=findings)


def _kept(request: Report, context: Context) -> Generator[Calls, Outputs, _Start | None]:
    """The part of the last attempt to keep; None if its headings cannot be kept, or no fault in it is known."""
    earlier = context.previous.keepable if context.previous else None
    try:
        last = ReportArtifact.model_validate(earlier) if earlier else None
    except ValidationError:
        last = None
    if last is None or len(last.sections) != request.sections:
        return None
    text = yield from condensed(request.source, context, RESERVE)
    headings = [section.heading for section in last.sections]
    if gate_in(heading_faults(last.title, headings, text, request), request.locale):
        return None
    kept = {
        place: section
        for place, section in enumerate(last.sections)
        if not gate_in(section_faults(section, text, request, last.sections[:place]), request.locale)
    }
    if len(kept) == len(last.sections) and not gate_in(
        summary_faults(last.summary, last.sections, text, request), request.locale
    ):
        return None
    briefs = tuple(
        SectionBrief(section.heading, quotes=tuple(citation.quote for citation in section.citations))
        for section in last.sections
    )
    return _Start(text, last.title, briefs, kept)


KIND = JobKind(
    name="report",
    request=Report,
    artifact=ReportArtifact,
    plan=BySize(ReportPlan(Writer()), small=ReportPlan(SmallModelWriter())),
    locale=lambda request: request.locale,
    source=lambda request: request.source,
    compared=lambda artifact: "\n\n".join(section.body for section in artifact.sections),
)
