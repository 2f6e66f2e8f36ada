"""The values of reports: sections with citations, and the briefs and sizes of sections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from thothy_ai.jobs.api.artifact import Artifact, Evidence
from thothy_ai.jobs.api.brief import Origin
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.schema import NOT_WRITTEN, line

MAX_SENTENCE_CHARS = 260
MAX_HEADING_CHARS = 120
NO_EVIDENCE = Rejection(RejectionReason.EMPTY, "the source has no sentence that a report could rest on")


class Citation(Evidence):
    """Evidence: a span of the source."""

    quote: Annotated[str, Field(min_length=1, max_length=1_000)]
    source: Annotated[Origin | None, NOT_WRITTEN] = None


class Section(Artifact):
    """A section. Paragraphs are separated by blank lines."""

    heading: Annotated[str, line(1, MAX_HEADING_CHARS)]
    body: Annotated[str, Field(min_length=1, max_length=10_000)]
    citations: Annotated[tuple[Citation, ...], Field(max_length=12)] = ()


@dataclass(frozen=True)
class SectionBrief:
    """The brief of a section: what it covers, and quotations that it can rest on. `report` names the whole report, if
    any.
    """

    heading: str
    covers: str = ""
    quotes: tuple[str, ...] = ()
    report: str = ""


@dataclass(frozen=True)
class Size:
    """The length of a section, each field as minimum and maximum; `sentences` counts per paragraph."""

    paragraphs: tuple[int, int]
    sentences: tuple[int, int]
    words: tuple[int, int]
    quotes: tuple[int, int]


def size_of(request: WritingRequest[Any]) -> Size:
    """The size of a section for the requested length."""
    return request.per_length(
        Size((1, 1), (2, 4), (30, 90), (1, 2)),
        Size((1, 2), (2, 5), (60, 200), (1, 3)),
        Size((2, 4), (3, 5), (150, 450), (2, 5)),
    )
