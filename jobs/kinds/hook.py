"""The kind `hook`: one sentence that makes readers want to read the piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from thothy_ai.jobs import checks
from thothy_ai.jobs.kind import Artifact, JobKind
from thothy_ai.jobs.one_call import OneCall
from thothy_ai.jobs.plan import Context, Message, Sampling
from thothy_ai.jobs.prompts import about_source, in_language
from thothy_ai.jobs.requests import ShortText, WritingRequest
from thothy_ai.jobs.schema import sentences
from thothy_ai.jobs.verdict import Rejection

MAX_SENTENCE_CHARS = 220  # per sentence
Channel = Literal["newsletter", "social post", "video", "podcast", "landing page"]


class HookArtifact(Artifact):
    """A hook of one sentence."""

    hook: Annotated[str, sentences(1, 1, MAX_SENTENCE_CHARS)]


class Hook(WritingRequest[HookArtifact]):
    """Write a hook for a channel, in a tone."""

    channel: Annotated[Channel, Field(description="Where the hook appears.")] = "newsletter"
    tone: Annotated[ShortText, Field(description="Tone of the sentence.")] = "curious"


def _instruction(request: Hook) -> str:
    return (
        f"Summarize the text above for {request.audience} in one {request.tone} sentence for a {request.channel}."
        f"{in_language(request.locale)}"
    )


def _prompt(request: Hook, context: Context) -> tuple[Message, ...]:
    return about_source(request.source, _instruction(request), context)


def _sampling(_: Hook) -> Sampling:
    return Sampling(max_tokens=60, temperature=0.4, top_p=0.9, repetition_penalty=1.02)


def _checks(request: Hook, artifact: HookArtifact) -> Iterator[Rejection | None]:
    hook = artifact.hook
    yield checks.length("hook", hook, request.locale, 4, 40)
    yield checks.unfinished("hook", hook, request.locale)
    yield checks.repetition(hook, request.locale)
    yield checks.echo(hook, _instruction(request))
    yield checks.copied("hook", hook, request.source, request.locale)
    yield checks.new_number(hook, request.source, request.locale)
    yield checks.wrong_language(hook, request.locale)
    yield checks.off_topic(hook, request.source, request.locale, 0.2)


KIND = JobKind(
    name="hook",
    request=Hook,
    artifact=HookArtifact,
    plan=OneCall(
        artifact=HookArtifact,
        prompt=_prompt,
        sampling=_sampling,
        checks=_checks,
        locale=lambda request: request.locale,
    ),
    locale=lambda request: request.locale,
    source=lambda request: request.source,
)
