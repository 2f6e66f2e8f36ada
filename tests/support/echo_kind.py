"""A kind for tests of the queue: it refuses what begins with `retry` or `hopeless`, and has a finding in `doubt`. On
`raise` its validator raises an error, on `stall` it hangs in a regular expression that never returns to Python, on
`exit` it ends its process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Annotated

from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.kind import JobKind, Policy, Request
from thothy_ai.jobs.api.plan import Message, Sampling
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.plans.one_call import OneCall
from thothy_ai.jobs.schema import prose


class Echo(Request):
    text: str
    more: int = 0  # follow-ups wanted


class EchoArtifact(Artifact):
    echo: Annotated[str, prose(1, 100)]


def _checks(_: Echo, artifact: EchoArtifact) -> Iterator[Rejection | None]:
    if artifact.echo.startswith("raise"):
        raise ZeroDivisionError("no source")
    if artifact.echo.startswith("stall"):
        re.match("(a+)+$", "a" * 64 + "b")
    if artifact.echo.startswith("exit"):
        os._exit(3)
    if artifact.echo.startswith("hopeless"):
        yield Rejection(RejectionReason.PROMPT_TOO_LONG, "not a word of it")
    if artifact.echo.startswith("retry"):
        yield Rejection(RejectionReason.REPETITION, "again")
    if artifact.echo.startswith("doubt"):
        yield Rejection(RejectionReason.NUMBER_NOT_IN_SOURCE, "no number", part="echo")


def _follow_ups(request: Echo, artifact: EchoArtifact) -> tuple[Echo, ...]:
    # Of the whole text, which an artifact may only begin with, unless somebody has edited it.
    followed = request.text if request.text.startswith(artifact.echo) else artifact.echo
    return tuple(Echo(text=f"{followed} {number}") for number in range(request.more))


KIND = JobKind(
    name="echo",
    request=Echo,
    artifact=EchoArtifact,
    plan=OneCall(
        artifact=EchoArtifact,
        prompt=lambda request, _: (Message("user", request.text),),
        sampling=lambda _: Sampling(max_tokens=16, temperature=0.5),
        checks=_checks,
        template_options={"style": "plain"},
    ),
    locale=lambda _: "en",
    source=lambda request: request.text,
    follow_ups=_follow_ups,
    policy=Policy.PUBLISH,
)
