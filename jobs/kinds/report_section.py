"""The kind `report_section`: a paragraph about one aspect of the source, under a given heading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from thothy_ai.jobs import checks
from thothy_ai.jobs.kind import Artifact, JobKind
from thothy_ai.jobs.one_call import OneCall
from thothy_ai.jobs.plan import Context, Message, Sampling
from thothy_ai.jobs.prompts import about_source, in_language
from thothy_ai.jobs.requests import ShortText, WritingRequest
from thothy_ai.jobs.schema import line, sentences
from thothy_ai.jobs.verdict import Rejection

MAX_SENTENCE_CHARS = 260  # per sentence
MAX_HEADING_CHARS = 120


class ReportSectionArtifact(Artifact):
    """A section. The heading is that of the request; it comes last because a small model would repeat it otherwise."""

    body: Annotated[str, sentences(2, 4, MAX_SENTENCE_CHARS)]
    heading: Annotated[str, line(1, MAX_HEADING_CHARS)]


class ReportSection(WritingRequest[ReportSectionArtifact]):
    """Write a section of a report that explains a topic."""

    heading: Annotated[
        str, line(1, MAX_HEADING_CHARS), Field(description="Heading of the section, taken over as it is.")
    ] = "What is changing, and why"
    topic: Annotated[ShortText, Field(description="What the section explains.")] = "what is changing and why"


def _instruction(request: ReportSection) -> str:
    return (
        f"Explain to {request.audience} in three sentences {request.topic}, with facts of the text above."
        f"{in_language(request.locale)}"
    )


def _prompt(request: ReportSection, context: Context) -> tuple[Message, ...]:
    return about_source(request.source, _instruction(request), context)


def _schema_overrides(request: ReportSection) -> Mapping[str, Any]:
    return {"heading": {"const": request.heading}}


def _sampling(_: ReportSection) -> Sampling:
    return Sampling(max_tokens=180, temperature=0.4, top_p=0.9, repetition_penalty=1.02)


def _checks(request: ReportSection, artifact: ReportSectionArtifact) -> Iterator[Rejection | None]:
    body = artifact.body
    yield checks.length("body", body, request.locale, 15, 180)
    yield checks.unfinished("body", body, request.locale)
    yield checks.repetition(body, request.locale)
    yield checks.echo(body, _instruction(request))
    yield checks.new_number(body, request.source, request.locale)
    yield checks.wrong_language(body, request.locale)
    yield checks.off_topic(body, request.source, request.locale, 0.35)


KIND = JobKind(
    name="report_section",
    request=ReportSection,
    artifact=ReportSectionArtifact,
    plan=OneCall(
        artifact=ReportSectionArtifact,
        prompt=_prompt,
        sampling=_sampling,
        checks=_checks,
        locale=lambda request: request.locale,
        schema_overrides=_schema_overrides,
    ),
    locale=lambda request: request.locale,
    source=lambda request: request.source,
)
