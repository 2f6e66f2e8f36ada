"""A kind for tests of plans: one call per part, side by side, then a verification of all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated

from thothy_ai.jobs import (
    Artifact,
    Call,
    Context,
    Early,
    JobKind,
    Message,
    Plan,
    Rejection,
    RejectionReason,
    Request,
    Sampling,
    Verdict,
)
from thothy_ai.jobs.api.kind import Policy
from thothy_ai.jobs.api.plan import stopped
from thothy_ai.jobs.api.verdict import Finding, Verification, VerifiedClaim
from thothy_ai.jobs.schema import prose

SCHEMA = {"type": "object", "properties": {"echo": {"type": "string"}}, "required": ["echo"]}
SAMPLING = Sampling(max_tokens=100, temperature=0.5)


class Parts(Request):
    parts: tuple[str, ...]
    verification: str = "ok verification"
    locale: str = "en"


class PartsArtifact(Artifact):
    text: Annotated[str, prose(1, 500)]


def _plan(request: Parts, context: Context) -> Plan:
    before = context.previous
    after = f" after {before.reason} of {before.artifact['text']}" if before and before.artifact else ""
    outputs = yield tuple(_calls(request, after))
    if rejection := next(filter(None, map(stopped, outputs)), None):
        return Verdict.reject(rejection)
    yield (Call((Message("user", request.verification),), SCHEMA, SAMPLING, step="verify"),)
    artifact = PartsArtifact(text=" ".join(json.loads(output.text)["echo"] for output in outputs))
    verification = Verification((VerifiedClaim(artifact.text, "supported", ""),))
    if artifact.text.startswith("retry"):
        return Verdict.reject(Rejection(RejectionReason.REPETITION, "again"), artifact, verification)
    weighed = Finding(RejectionReason.UNSUPPORTED, "in doubt", weight=context.verification_precision)
    return Verdict.accept(artifact, verification, (weighed,) if artifact.text.startswith("doubt") else ())


def _calls(request: Parts, after: str) -> Iterator[Call]:
    for part in request.parts:
        early = Early(("echo",), ("banned",), banned=("40 bikes",)) if part.endswith("12") else None
        yield Call((Message("user", part + after),), SCHEMA, SAMPLING, locale=request.locale, early=early)


KIND = JobKind(
    name="parts",
    request=Parts,
    artifact=PartsArtifact,
    plan=_plan,
    locale=lambda request: request.locale,
    source=lambda request: " ".join(request.parts),
    version="7",
    compared=lambda artifact: artifact.text,
    policy=Policy.PUBLISH,
)
