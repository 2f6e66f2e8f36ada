"""A kind for tests of the queue: it refuses what begins with `retry` or `hopeless`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from thothy_ai.jobs.kind import Artifact, JobKind, Message, Rejection, RejectionReason, Request, Sampling
from thothy_ai.jobs.schema import prose


class Echo(Request):
    text: str
    more: int = 0  # follow-ups wanted


class EchoArtifact(Artifact):
    echo: Annotated[str, prose(1, 100)]


def _checks(_: Echo, artifact: EchoArtifact) -> Iterator[Rejection | None]:
    if artifact.echo.startswith("hopeless"):
        yield Rejection(RejectionReason.WRONG_LANGUAGE, "not a word of it")
    if artifact.echo.startswith("retry"):
        yield Rejection(RejectionReason.REPETITION, "again")


def _follow_ups(request: Echo, _: EchoArtifact) -> tuple[Echo, ...]:
    return tuple(Echo(text=f"{request.text} {number}") for number in range(request.more))


KIND = JobKind(
    name="echo",
    request=Echo,
    artifact=EchoArtifact,
    prompt=lambda request: (Message("user", request.text),),
    sampling=lambda _: Sampling(max_tokens=16, temperature=0.5),
    locale=lambda _: "en",
    source=lambda request: request.text,
    checks=_checks,
    follow_ups=_follow_ups,
)
