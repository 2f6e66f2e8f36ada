"""The kind `first_call`: another kind's job that ends after its first calls, for `thothy bench service`.

The service and the bare engine thus get the same generations; otherwise every part of an output of random weights would
be repaired. Prompts, schemas and the judging of the first outputs are the other kind's. No output is stopped early,
because its length would then depend on how fast the worker checks it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from thothy_ai.jobs import registry
from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.kind import JobKind, Request
from thothy_ai.jobs.api.plan import Context, Plan
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason, Verdict

MODULE = __name__


class FirstCallArtifact(Artifact):
    """The artifact of the other kind, as JSON values."""

    artifact: dict[str, Any]


class FirstCall(Request[FirstCallArtifact]):
    """A request of another kind, as JSON values."""

    kind: str
    request: dict[str, Any]

    @classmethod
    def of(cls, job: Request) -> FirstCall:
        return cls(kind=registry.kind_of(job).name, request=job.model_dump(mode="json", exclude_defaults=True))

    @property
    def job(self) -> Request:
        parsed: Request = registry.find(self.kind).request.model_validate(self.request)
        return parsed


def _plan(request: FirstCall, context: Context) -> Plan:
    plan = registry.find(request.kind).plan(request.job, context)
    try:
        outputs = yield tuple(replace(call, locale=None, early=None) for call in next(plan))
        plan.send(outputs)
    except StopIteration as stop:
        verdict: Verdict = stop.value
        if verdict.artifact is not None and verdict.accepted:
            return Verdict.accept(FirstCallArtifact(artifact=verdict.artifact.model_dump(mode="json")))
        return Verdict.reject(Rejection(verdict.reason or RejectionReason.EMPTY, verdict.detail))
    plan.close()
    return Verdict.reject(Rejection(RejectionReason.TRUNCATED, "further calls would follow"))


KIND = JobKind(
    name="first_call",
    request=FirstCall,
    artifact=FirstCallArtifact,
    plan=_plan,
    locale=lambda request: registry.find(request.kind).locale(request.job),
    source=lambda request: registry.find(request.kind).source(request.job),
)
