"""The kind of job that a chaos run sends. It is cheap to judge, and its request says how the job will end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.kind import JobKind, Policy, Request
from thothy_ai.jobs.api.plan import Message, Sampling
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.plans.one_call import OneCall
from thothy_ai.jobs.schema import prose

NAME = "chaos"


class Chaos(Request):
    """Job `number`. `verdict`: what the validator will say; `more`: how many follow-up jobs to ask for."""

    number: int
    verdict: Literal["accepted", "rejected"] = "accepted"
    more: int = 0


class ChaosArtifact(Artifact):
    """A note without meaning: only its verdict matters."""

    note: Annotated[str, prose(1, 60)]


def _checks(request: Chaos, _: ChaosArtifact) -> Iterator[Rejection | None]:
    if request.verdict == "rejected":
        yield Rejection(RejectionReason.WRONG_LANGUAGE, "as asked for")


KIND = JobKind(
    name=NAME,
    request=Chaos,
    artifact=ChaosArtifact,
    plan=OneCall(
        artifact=ChaosArtifact,
        prompt=lambda request, _: (Message("user", f"Write one short sentence about the number {request.number}."),),
        sampling=lambda _: Sampling(max_tokens=24, temperature=0.5),
        checks=_checks,
    ),
    locale=lambda _: "en",
    source=lambda request: str(request.number // 100),
    policy=Policy.PUBLISH,
    follow_ups=lambda request, _: tuple(Chaos(number=request.number) for _ in range(request.more)),
)
