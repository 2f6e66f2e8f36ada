"""The kind `trend_summary`: what is happening, in one to three sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from thothy_ai.jobs import checks
from thothy_ai.jobs.kind import Artifact, JobKind, Request
from thothy_ai.jobs.kinds.translation import Translation
from thothy_ai.jobs.locales import Locale
from thothy_ai.jobs.one_call import OneCall
from thothy_ai.jobs.plan import Context, Message, Sampling
from thothy_ai.jobs.prompts import about_source, in_language
from thothy_ai.jobs.requests import WritingRequest
from thothy_ai.jobs.schema import sentences
from thothy_ai.jobs.verdict import Rejection

MAX_SENTENCE_CHARS = 260  # per sentence


class TrendSummaryArtifact(Artifact):
    """A summary of one to three sentences."""

    summary: Annotated[str, sentences(1, 3, MAX_SENTENCE_CHARS)]


class TrendSummary(WritingRequest[TrendSummaryArtifact]):
    """Summarize a trend. An accepted summary is then translated into the languages of `translate_to`."""

    translate_to: tuple[Locale, ...] = Field(
        default=(),
        max_length=20,
        description="Languages to translate an accepted summary into, each as a job of its own.",
    )


def _instruction(request: TrendSummary) -> str:
    return f"Summarize the text above for {request.audience} in two sentences.{in_language(request.locale)}"


def _prompt(request: TrendSummary, context: Context) -> tuple[Message, ...]:
    return about_source(request.source, _instruction(request), context)


def _sampling(_: TrendSummary) -> Sampling:
    return Sampling(max_tokens=140, temperature=0.4, top_p=0.9, repetition_penalty=1.02)


def _checks(request: TrendSummary, artifact: TrendSummaryArtifact) -> Iterator[Rejection | None]:
    summary = artifact.summary
    yield checks.length("summary", summary, request.locale, 10, 110)
    yield checks.unfinished("summary", summary, request.locale)
    yield checks.repetition(summary, request.locale)
    yield checks.echo(summary, _instruction(request))
    yield checks.new_number(summary, request.source, request.locale)
    yield checks.wrong_language(summary, request.locale)
    yield checks.off_topic(summary, request.source, request.locale, 0.35)


def _follow_ups(request: TrendSummary, artifact: TrendSummaryArtifact) -> tuple[Request, ...]:
    return tuple(
        Translation(source=request.source, passage=artifact.summary, target_locale=locale)
        for locale in request.translate_to
    )


KIND = JobKind(
    name="trend_summary",
    request=TrendSummary,
    artifact=TrendSummaryArtifact,
    plan=OneCall(
        artifact=TrendSummaryArtifact,
        prompt=_prompt,
        sampling=_sampling,
        checks=_checks,
        locale=lambda request: request.locale,
    ),
    locale=lambda request: request.locale,
    source=lambda request: request.source,
    follow_ups=_follow_ups,
)
