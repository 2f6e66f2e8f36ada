"""The kind `report_section`: one section about an aspect of the source, under a given heading, with its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from thothy_ai.jobs.api.kind import JobKind
from thothy_ai.jobs.api.plan import Context, Plan
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.api.terms import ShortText
from thothy_ai.jobs.api.verdict import Rejection, Verdict
from thothy_ai.jobs.evidence import spans
from thothy_ai.jobs.kinds.report.assignment import Assignment
from thothy_ai.jobs.kinds.report.citing import cited
from thothy_ai.jobs.kinds.report.faults import section_faults
from thothy_ai.jobs.kinds.report.small import SmallModelWriter
from thothy_ai.jobs.kinds.report.values import MAX_HEADING_CHARS, NO_EVIDENCE, Section, SectionBrief
from thothy_ai.jobs.kinds.report.verifying import summed_up
from thothy_ai.jobs.kinds.report.writer import Writer
from thothy_ai.jobs.plans.by_size import BySize
from thothy_ai.jobs.plans.documents import condensed
from thothy_ai.jobs.plans.judging import findings_of, verdict
from thothy_ai.jobs.publishing.piece import Piece
from thothy_ai.jobs.schema import line


class ReportSectionArtifact(Section):
    """A section: the heading of the request, the text, and the spans of the source that support it."""

    def piece(self, _request: Mapping[str, Any]) -> Piece:
        """The text with its citations, under the heading."""
        return Piece(title=self.heading, blocks=(cited(self),))


class ReportSection(WritingRequest[ReportSectionArtifact]):
    """Write a section of a report that explains a topic."""

    heading: Annotated[
        str, line(1, MAX_HEADING_CHARS), Field(description="Heading of the section, taken over as it is.")
    ] = "What is changing, and why"
    topic: Annotated[ShortText, Field(description="What the section explains.")] = "what is changing and why"

    @property
    def subject(self) -> str:
        """Heading and topic; the text must address them."""
        return f"{self.heading}. {self.topic}"


@dataclass(frozen=True)
class ReportSectionPlan:
    """Writes a section, and once more if it has faults."""

    writer: Writer

    def __call__(self, request: ReportSection, context: Context) -> Plan:
        """Condense a long source, write, judge, repair."""
        if not spans(request.source, request.locale):
            return Verdict.reject(NO_EVIDENCE)
        text = yield from condensed(request.source, context)
        assignment = Assignment(
            [SectionBrief(request.heading, request.topic)], text, request, self.writer, request.subject
        )
        written = yield from assignment.written({}, context)
        rejection = written.rejections.get(0)
        if rejection and not written.sections:
            return Verdict.reject(rejection)
        artifact = ReportSectionArtifact.model_validate(written.sections[0].model_dump())
        found = self.checks(request, artifact)
        if rejection is None:
            return verdict(artifact, found, request.locale, *summed_up(written.verified.values()))
        findings = findings_of(found, artifact.model_dump(mode="json"), request.locale)
        return Verdict.reject(rejection, artifact, findings=findings)

    def checks(self, request: ReportSection, artifact: ReportSectionArtifact) -> Sequence[Rejection]:
        """Faults and doubts of a section."""
        return section_faults(artifact, request.source, request, topic=request.subject)


KIND = JobKind(
    name="report_section",
    request=ReportSection,
    artifact=ReportSectionArtifact,
    plan=BySize(ReportSectionPlan(Writer()), small=ReportSectionPlan(SmallModelWriter())),
    locale=lambda request: request.locale,
    source=lambda request: request.source,
    version="2",
    compared=lambda artifact: artifact.body,
)
