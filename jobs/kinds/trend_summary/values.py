"""A trend summary as it is asked for, and as an editor publishes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from thothy_ai.jobs.api.artifact import Artifact, Evidence, quoted
from thothy_ai.jobs.api.brief import Origin
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.kinds.translation import TranslatingRequest
from thothy_ai.jobs.publishing.piece import Cited, Paragraph, Piece, Points
from thothy_ai.jobs.schema import NOT_WRITTEN, prose, quotation, title
from thothy_ai.jobs.text.locales import Locale


class KeyPoint(Evidence):
    """A point, and the passage of the source that supports it."""

    point: Annotated[str, prose(2, 400)]
    quote: Annotated[str, quotation(1, 320)]
    source: Annotated[Origin | None, NOT_WRITTEN] = None


class TrendSummaryArtifact(Artifact):
    """A summary as an editor publishes it."""

    title: Annotated[str, title(3, 130)]
    standfirst: Annotated[str, prose(2, 600)]
    key_points: Annotated[tuple[KeyPoint, ...], Field(min_length=1, max_length=7)]
    why_it_matters: Annotated[str, prose(2, 500)]
    tags: Annotated[tuple[Annotated[str, prose(2, 40)], ...], Field(min_length=1, max_length=6)]
    confidence: Literal["low", "medium", "high"]

    def piece(self, _request: Mapping[str, Any]) -> Piece:
        """The points with their quotations, then why it matters. The confidence is for editors."""
        points = Points(tuple(Cited(point.point, (quoted(point.quote, point.source),)) for point in self.key_points))
        blocks = (points, Paragraph((Cited(self.why_it_matters),)))
        return Piece(title=self.title, standfirst=self.standfirst, blocks=blocks, tags=self.tags)

    @property
    def texts(self) -> dict[tuple[str | int, ...], str]:
        """The artifact's own texts by their paths, without quotations."""
        texts: dict[tuple[str | int, ...], str] = {("title",): self.title, ("standfirst",): self.standfirst}
        texts |= {("key_points", number, "point"): each.point for number, each in enumerate(self.key_points)}
        texts["why_it_matters",] = self.why_it_matters
        return texts | {("tags", number): tag for number, tag in enumerate(self.tags)}


class TranslatedPoint(KeyPoint):
    """A point in another language. Its evidence is what the source says."""

    point: Annotated[str, Field(min_length=1, max_length=2_400)]


class SummaryTranslationArtifact(TrendSummaryArtifact):
    """A summary in another language, with the evidence of the original."""

    title: Annotated[str, Field(min_length=1, max_length=800)]
    standfirst: Annotated[str, Field(min_length=1, max_length=3_600)]
    key_points: Annotated[tuple[TranslatedPoint, ...], Field(min_length=1, max_length=7)]
    why_it_matters: Annotated[str, Field(min_length=1, max_length=3_000)]
    tags: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=240)], ...], Field(max_length=6)]


class SummaryTranslation(TranslatingRequest[SummaryTranslationArtifact]):
    """Translate a trend summary field by field. Its quotations stay in the language of the source."""

    summary: Annotated[TrendSummaryArtifact, Field(description="The summary, as `trend_summary` returns it.")]


class TrendSummary(WritingRequest[TrendSummaryArtifact]):
    """Summarize a trend. An accepted summary is then translated into the languages of `translate_to`."""

    translate_to: tuple[Locale, ...] = Field(
        default=(),
        max_length=20,
        description="Languages to translate an accepted summary into, each as a job of its own.",
    )

    @property
    def points(self) -> tuple[int, int]:
        """The smallest and largest number of key points."""
        return self.per_length((1, 3), (3, 5), (5, 7))
