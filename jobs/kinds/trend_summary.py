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
from thothy_ai.jobs.schema import sentences, title

LONGEST = 200  # characters in a sentence


class TrendSummary(WritingRequest):
    """Ask for a trend summary; an accepted one is then translated into the languages of `translate_to`."""

    translate_to: tuple[Locale, ...] = Field(default=(), max_length=20)


class TrendSummaryArtifact(Artifact):
    """The trend in short."""

    headline: Annotated[str, title(10, 80)]
    summary: Annotated[str, sentences(1, 2, LONGEST)]
    key_points: Annotated[tuple[Annotated[str, sentences(1, 1, LONGEST)], ...], Field(min_length=1, max_length=2)]


def _prompt(request: TrendSummary) -> tuple[Message, ...]:
    return about_source(
        request.source,
        f"Provide a concise, objective summary of the input text for {request.audience}: a headline, a summary in up "
        f"to two sentences, and two key points in one very short sentence each.{in_language(request.locale)}",
    )


def _sampling(_: TrendSummary) -> Sampling:
    return Sampling(max_tokens=160, temperature=0.25, top_p=0.9)


def _checks(request: TrendSummary, artifact: TrendSummaryArtifact) -> Iterator[Rejection | None]:
    whole = "\n".join((artifact.headline, artifact.summary, *artifact.key_points))
    yield checks.words("headline", artifact.headline, 2, 16)
    yield checks.words("summary", artifact.summary, 10, 70)
    yield checks.unfinished("summary", artifact.summary, LONGEST)
    for point in artifact.key_points:
        yield checks.unfinished("key_points", point, LONGEST)
    yield checks.repetition("\n".join((artifact.summary, *artifact.key_points)))
    yield checks.new_number(whole, request.source)
    yield checks.wrong_language(whole, request.locale)
    yield checks.off_topic(whole, request.source, request.locale, 0.35)


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
