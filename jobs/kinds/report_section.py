"""A report section: a heading and a paragraph or two about one side of the source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from thothy_ai.jobs import checks
from thothy_ai.jobs.kind import Artifact, JobKind, Message, Rejection, Sampling
from thothy_ai.jobs.prompts import about_source, in_language
from thothy_ai.jobs.requests import ShortText, WritingRequest
from thothy_ai.jobs.schema import sentences, title

LONGEST = 240  # characters in a sentence


class ReportSection(WritingRequest):
    """Ask for the section of a report that deals with `topic`."""

    topic: ShortText = "what is changing and why"


class ReportSectionArtifact(Artifact):
    """The section."""

    heading: Annotated[str, title(5, 80)]
    paragraphs: Annotated[tuple[Annotated[str, sentences(1, 3, LONGEST)], ...], Field(min_length=1, max_length=2)]


def _prompt(request: ReportSection) -> tuple[Message, ...]:
    return about_source(
        request.source,
        f"Write a section of a report about {request.topic}, for {request.audience}: a short heading, and the facts of "
        f"the input text in up to three sentences.{in_language(request.locale)}",
    )


def _sampling(_: ReportSection) -> Sampling:
    return Sampling(max_tokens=180, temperature=0.25, top_p=0.9)


def _checks(request: ReportSection, artifact: ReportSectionArtifact) -> Iterator[Rejection | None]:
    body = "\n".join(artifact.paragraphs)
    yield checks.words("heading", artifact.heading, 1, 14)
    yield checks.words("paragraphs", body, 20, 180)
    yield checks.unfinished("paragraphs", body, LONGEST)
    yield checks.repetition(body)
    yield checks.new_number(f"{artifact.heading}\n{body}", request.source)
    yield checks.wrong_language(body, request.locale)
    yield checks.off_topic(body, request.source, request.locale, 0.35)


KIND = JobKind(
    name="report_section",
    request=ReportSection,
    artifact=ReportSectionArtifact,
    prompt=_prompt,
    sampling=_sampling,
    locale=lambda request: request.locale,
    source=lambda request: request.source,
    checks=_checks,
)
