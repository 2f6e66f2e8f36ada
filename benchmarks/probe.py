"""A job kind for measurements: greedy, so that a job has the same output in each run, and every output is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.kind import JobKind, Request
from thothy_ai.jobs.api.plan import Message, Sampling
from thothy_ai.jobs.api.verdict import Rejection
from thothy_ai.jobs.plans.one_call import OneCall
from thothy_ai.jobs.schema import prose, prose_pattern

MAX_CHARS = 800


class Probe(Request):
    """Continue a text in at most `characters` characters."""

    text: str
    characters: Annotated[int, Field(ge=20, le=MAX_CHARS)] = 20


class ProbeArtifact(Artifact):
    """The continuation."""

    note: Annotated[str, prose(1, MAX_CHARS)]


def _no_checks(_: Probe, __: ProbeArtifact) -> Iterator[Rejection | None]:
    return iter(())


KIND = JobKind(
    name="probe",
    request=Probe,
    artifact=ProbeArtifact,
    plan=OneCall(
        artifact=ProbeArtifact,
        prompt=lambda request, _: (Message("user", request.text),),
        sampling=lambda request: Sampling(max_tokens=request.characters + 32),
        checks=_no_checks,
        schema_overrides=lambda request: {"note": {"type": "string", "pattern": prose_pattern(1, request.characters)}},
    ),
    locale=lambda _: "en",
    source=lambda request: request.text,
)
