"""Advances a job's plan: from its request and the outputs so far to the next calls, or to the judgement.

A plan is pure, and is replayed from its beginning each time. A process that advances it therefore keeps no state, and
each step can run in a different process. A worker runs a kind's code nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from thothy_ai.jobs import Call, Context, Previous, Rejection, Request, Verdict, checks, registry
from thothy_ai.jobs.api.kind import Policy
from thothy_ai.jobs.api.plan import MAX_STEPS, Calls, Outputs
from thothy_ai.jobs.api.verdict import Finding, RejectionReason, Verification
from thothy_ai.jobs.problems import first_problem
from thothy_ai.jobs.registry import AnyKind, UnknownKindError
from thothy_ai.queue.canonical import Canonical, canonical


class PlanError(Exception):
    """A plan cannot begin. `reason` is `unknown_kind`, `invalid_job`, or `kind_error` if the kind raised an error."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason}: {detail}")

    @property
    def permanent(self) -> bool:
        """Whether every further attempt would fail as well."""
        return self.reason != "kind_error"


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """The input of a plan. `request` holds plain JSON values, which may no longer parse. `policy` and `kv_budget` are
    the installation's; None: the kind's own. Jobs with the same `source_key`, unless it is empty, have the same source.
    """

    kind: str
    request: Any
    context: Context = field(default_factory=Context)
    policy: Policy | None = None
    kv_budget: int | None = None  # tokens; 0: none at all
    source_key: str = ""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A plan's next calls, with the locale of its artifact, the version of its kind's prompts, and its KV budget."""

    calls: Calls
    locale: str
    version: str
    kv_budget: int | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The end of a plan: a verdict as plain values, and the jobs that an accepted artifact asks for.

    `body` is the artifact, or the available fields of a rejected, incomplete one. `version` is the version of the
    kind's prompts. `signature` is set for an accepted artifact that must not resemble others, and finds similar ones.
    """

    accepted: bool
    reason: RejectionReason | None
    detail: str
    locale: str
    version: str
    body: dict[str, Any] | None = None
    verification: Verification | None = None
    follow_ups: tuple[Canonical, ...] = ()
    signature: tuple[int, ...] = ()
    findings: tuple[Finding, ...] = ()
    policy: Policy = Policy.REVIEW

    @property
    def retryable(self) -> bool:
        """Whether another attempt could be accepted."""
        return not self.accepted and (self.reason is None or self.reason.retryable)

    @property
    def needs_review(self) -> bool:
        """Whether a person reviews the accepted artifact before its follow-ups are made."""
        return self.accepted and bool(self.findings) and self.policy is Policy.REVIEW

    @property
    def previous(self) -> Previous | None:
        """What the next attempt's plan learns of this attempt; None unless it was rejected."""
        return None if self.reason is None else Previous(self.reason, self.detail, self.body)


def advance(
    job: PlannedJob, answered: Sequence[Outputs], on_error: Callable[[Exception], None] = lambda _: None
) -> PlanStep | Judgement:
    """The plan's next step after these outputs, or its judgement. CPU-bound.

    Raises `PlanError` if the plan cannot begin. Any later exception of the kind becomes a rejection with the reason
    `validator_error`; `on_error` receives the exception.
    """
    try:
        kind = registry.find(job.kind)
        request = kind.parsed(job.request)  # ignores unknown fields: a newer producer may know more
    except UnknownKindError as error:
        raise PlanError(reason="unknown_kind", detail=str(error)) from None
    except ValidationError as error:
        field, message = first_problem(error)
        raise PlanError(reason="invalid_job", detail=f"{field or 'request'}: {message}") from None
    try:
        step = _replayed(kind, request, job.context, answered)
        if isinstance(step, Verdict):
            return judgement_of(kind, request, step, job.policy)
        budget = kind.kv_budget if job.kv_budget is None else job.kv_budget
        return PlanStep(step, kind.locale(request), kind.version, budget or None)
    except Exception as error:
        on_error(error)
        if not answered:
            raise PlanError(reason="kind_error", detail=repr(error)) from error
        try:
            locale = kind.locale(request)
        except Exception:  # noqa: BLE001 - it may be what failed
            locale = ""
        return Judgement(False, RejectionReason.VALIDATOR_ERROR, repr(error), locale, kind.version)


def _replayed(kind: AnyKind, request: Request, context: Context, answered: Sequence[Outputs]) -> Calls | Verdict:
    plan = kind.plan(request, context)
    try:
        calls = next(plan)
        for outputs in answered:
            calls = plan.send(outputs)
    except StopIteration as stop:
        calls = stop.value
        if isinstance(calls, Verdict):
            return calls
    if not calls or not all(isinstance(call, Call) for call in calls):
        raise TypeError(f"a plan yields tuples of one Call or more, not {calls!r}")
    if len(answered) >= MAX_STEPS:
        raise ValueError(f"the plan has more than {MAX_STEPS} steps")
    return calls


def near_duplicate(kind_name: str, body: Any, others: Sequence[Any]) -> Rejection | None:
    """A rejection if this artifact is nearly the same as one of `others`, perhaps of older versions of the kind."""
    kind = registry.find(kind_name)
    if kind.compared is None:
        return None
    texts = []
    for other in others:
        with suppress(ValidationError):
            texts.append(kind.compared(kind.artifact.model_validate(other)))
    return checks.near_duplicate(kind.compared(kind.artifact.model_validate(body)), texts)


def judgement_of(kind: AnyKind, request: Request, verdict: Verdict, policy: Policy | None = None) -> Judgement:
    """The judgement from a verdict on this request's output, under `policy` or else the kind's own."""
    policy = policy or kind.policy
    if policy is Policy.STRICT and verdict.accepted and verdict.findings:
        heaviest = max(verdict.findings, key=lambda finding: finding.weight)
        verdict = replace(verdict, accepted=False, reason=heaviest.reason, detail=heaviest.detail)
    accepted = verdict.artifact if verdict.accepted else None
    follow_ups = kind.follow_ups(request, accepted) if accepted is not None else ()
    compared = kind.compared(accepted) if accepted is not None and kind.compared is not None else ""
    body = dict(verdict.draft) if verdict.draft else None
    if verdict.artifact is not None:
        body = verdict.artifact.model_dump(mode="json")
    return Judgement(
        verdict.accepted,
        verdict.reason,
        verdict.detail,
        kind.locale(request),
        kind.version,
        body,
        verdict.verification,
        tuple(map(canonical, follow_ups)),
        checks.signature(compared) if compared else (),
        verdict.findings,
        policy,
    )
