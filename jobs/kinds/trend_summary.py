"""A trend summary: what is happening, in a headline, a short summary and two points to remember."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from thothy_ai.jobs import checks
from thothy_ai.jobs.kind import Artifact, JobKind, Message, Rejection, Request, Sampling
from thothy_ai.jobs.kinds.translation import Translation
from thothy_ai.jobs.locales import Locale
from thothy_ai.jobs.prompts import about_source, in_language
from thothy_ai.jobs.requests import WritingRequest
from thothy_ai.jobs.schema import prose, title


class TrendSummary(WritingRequest):
    """Ask for a trend summary; an accepted one is then translated into the languages of `translate_to`."""

    translate_to: tuple[Locale, ...] = Field(default=(), max_length=20)


class TrendSummaryArtifact(Artifact):
    """The trend in short."""

    headline: Annotated[str, title(10, 90)]
    summary: Annotated[str, prose(60, 360)]
    key_points: Annotated[tuple[Annotated[str, prose(15, 110)], ...], Field(min_length=2, max_length=2)]


def _prompt(request: TrendSummary) -> tuple[Message, ...]:
    return about_source(
        request.source,
        f"Summarize the trend in this text for {request.audience}: a headline, a summary in two sentences, and two "
        f"key points of one short sentence each.{in_language(request.locale)}",
    )


def _sampling(_: TrendSummary) -> Sampling:
    return Sampling(max_tokens=140, temperature=0.4, top_p=0.9, repetition_penalty=1.05)


def _checks(request: TrendSummary, artifact: TrendSummaryArtifact) -> Iterator[Rejection | None]:
    whole = "\n".join((artifact.headline, artifact.summary, *artifact.key_points))
    yield checks.words("headline", artifact.headline, 2, 16)
    yield checks.words("summary", artifact.summary, 10, 70)
    yield checks.unfinished("summary", artifact.summary)
    yield checks.repetition("\n".join((artifact.summary, *artifact.key_points)))
    yield checks.new_number(whole, request.source)
    yield checks.wrong_language(whole, request.locale)


def _follow_ups(request: TrendSummary, artifact: TrendSummaryArtifact) -> tuple[Request, ...]:
    return tuple(
        Translation(source=request.source, passage=artifact.summary, target_locale=locale)
        for locale in request.translate_to
    )


KIND = JobKind(
    name="trend_summary",
    request=TrendSummary,
    artifact=TrendSummaryArtifact,
    prompt=_prompt,
    sampling=_sampling,
    locale=lambda request: request.locale,
    source=lambda request: request.source,
    checks=_checks,
    follow_ups=_follow_ups,
)
