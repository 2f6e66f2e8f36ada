"""How attempts end: turns a verdict, an engine error or a stop into a `Finish`. Pure.

accepted                                      succeeded; a person reviews what has findings, before its follow-ups
rejected, another sample may be accepted      queued at once, failure counted        as below when they are used up
rejected for good, budget spent               given up
refused by the engine                         given up at once
refused by the API, malformed, unknown kind   dead at once
fault of the kind                             queued after a delay, failure counted  given up when failures are used up
fault of the engine                           queued after a delay, nothing counted; after many as that of the kind
engine lost                                   queued, engine death counted           given up at the fourth
shutdown; engine away, stopped or accepting
nothing new; connection to a live engine lost queued at once, nothing counted
cancelled, deadline passed                    cancelled, expired

A job that is given up succeeds if one of its attempts left a draft that a person may edit, whatever the others ended
with, and is dead otherwise. A job that cannot be read stays dead, since nobody could check an edit of it. Nobody wants
what was cancelled, and what has expired is too late: neither waits for a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from thothy_ai.db.fragments import DEATHS_TO_RUN_ALONE
from thothy_ai.db.states import ArtifactVerdict, Event, JobState, Outcome, ReviewState
from thothy_ai.jobs.api.kind import Policy
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.plans.advance import Judgement
from thothy_ai.plans.context import Doubts, VerifierModel
from thothy_ai.worker.job_in_flight import StopReason
from thothy_ai.worker.record.claims import Claim
from thothy_ai.worker.record.finish import NO_USAGE, AttemptUsage, Finish, FollowUp, Judged

MAX_ENGINE_DEATHS = DEATHS_TO_RUN_ALONE + 1  # at the last death the job ran alone, so it kills engines
MAX_DETAIL_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Retry:
    """When a failed job may run again: exponential backoff with full jitter (Brooker, AWS, 2015), in seconds."""

    base_seconds: float
    cap_seconds: float

    def delay(self, failures: int, chance: float) -> float:
        """Seconds to wait after `failures` failures; `chance` is uniform in [0, 1)."""
        return chance * min(self.cap_seconds, self.base_seconds * 2.0 ** min(failures - 1, 30))


def judged(
    claim: Claim,
    judgement: Judgement,
    text: str,
    usage: AttemptUsage,
    provenance: dict[str, Any] | None = None,
    verified_by: tuple[VerifierModel, Doubts] | None = None,
) -> Finish:
    """The outcome of a judged output; `doubts` are the measured ones of its verifier."""
    verification = None
    if judgement.verification is not None:
        claims = [claim._asdict() for claim in judgement.verification.claims]
        verification = {"claims": claims, "compute_seconds": usage.verification_seconds}
        if verified_by is not None:
            verifier, doubts = verified_by
            measured_at = doubts.measured_at and doubts.measured_at.isoformat()
            verification |= {**verifier._asdict(), "weight": doubts.weight, "measured_at": measured_at}
    output = Judged(
        ArtifactVerdict.ACCEPTED if judgement.accepted else ArtifactVerdict.REJECTED,
        judgement.locale,
        judgement.body,
        storable(text),
        provenance,
        verification,
        judgement.signature,
        judgement.findings,
        editable=judgement.policy is Policy.REVIEW and bool(judgement.body),
    )
    if judgement.accepted:
        return Finish(
            claim.id,
            claim.attempt,
            JobState.SUCCEEDED,
            Outcome.SUCCEEDED,
            usage=usage,
            judged=output,
            follow_ups=()
            if judgement.needs_review
            else tuple(FollowUp(claim, wanted) for wanted in judgement.follow_ups),
            needs=ReviewState.NEEDS_REVIEW if judgement.needs_review else None,
        )
    ended = Finish(
        claim.id,
        claim.attempt,
        JobState.QUEUED,
        Outcome.REJECTED,
        Event.REJECTED,
        usage=usage,
        judged=output,
        drafted=claim.drafted,
    )
    reason = Rejection(judgement.reason or RejectionReason.VALIDATOR_ERROR, judgement.detail)
    return _rejected(ended, reason, again=judgement.retryable and not _used_up(claim))


def duplicate(claim: Claim, finish: Finish, rejection: Rejection) -> Finish:
    """An accepted output that is nearly the same as one that was accepted meanwhile."""
    judged = finish.judged and replace(finish.judged, verdict=ArtifactVerdict.REJECTED, signature=())
    finish = replace(finish, judged=judged, follow_ups=(), drafted=claim.drafted)
    return _rejected(finish, rejection, again=not _used_up(claim))


def _rejected(finish: Finish, rejection: Rejection, *, again: bool) -> Finish:
    rejected = replace(
        finish,
        state=JobState.QUEUED,
        outcome=Outcome.REJECTED,
        event=Event.REJECTED,
        reason=str(rejection.reason),
        detail=_detail(rejection.detail),
        failures=1,
        needs=None,
    )
    return rejected if again else _given_up(rejected)


def _given_up(finish: Finish) -> Finish:
    """The job gets no further attempt: a person can edit its best draft, if there is one."""
    if not (finish.drafted or finish.is_draft):
        return replace(finish, state=JobState.DEAD, event=Event.DEAD)
    return replace(finish, state=JobState.SUCCEEDED, event=Event.KEPT, needs=ReviewState.NEEDS_EDIT)


def hopeless(claim: Claim, reason: str, detail: str, usage: AttemptUsage = NO_USAGE) -> Finish:
    """Give up a job whose further attempts would all fail."""
    return _given_up(replace(dead(claim, reason, detail), usage=usage, drafted=claim.drafted))


def dead(claim: Claim, reason: str, detail: str) -> Finish:
    """End an unreadable job, or one answered with an error: neither an attempt nor an edit helps."""
    return Finish(
        claim.id, claim.attempt, JobState.DEAD, Outcome.FAILED, Event.DEAD, reason, _detail(detail), failures=1
    )


def refused(claim: Claim, status: int, reason: str, detail: str, error: Mapping[str, Any]) -> Finish:
    """End a job whose request OpenAI's API refuses; the artifact is the API's response."""
    answer = Judged(ArtifactVerdict.REJECTED, "und", {"status": status, **error}, "")
    return replace(dead(claim, reason, detail), judged=answer)


def failed(
    claim: Claim, reason: str, detail: str, retry: Retry, chance: float, usage: AttemptUsage = NO_USAGE
) -> Finish:
    """The outcome of a failure that may pass."""
    ended = Finish(
        claim.id,
        claim.attempt,
        JobState.QUEUED,
        Outcome.FAILED,
        Event.RETRIED,
        reason,
        _detail(detail),
        delay_seconds=retry.delay(claim.failures + 1, chance),
        failures=1,
        usage=usage,
        drafted=claim.drafted,
    )
    return _given_up(ended) if _used_up(claim) else ended


def engine_died(claim: Claim, detail: str, usage: AttemptUsage = NO_USAGE) -> Finish:
    """The engine died while the job was in flight."""
    ended = Finish(
        claim.id,
        claim.attempt,
        JobState.QUEUED,
        Outcome.LOST,
        Event.LOST,
        "engine_lost",
        _detail(detail),
        engine_deaths=1,
        usage=usage,
        drafted=claim.drafted,
    )
    killer = claim.engine_deaths + 1 >= MAX_ENGINE_DEATHS
    return _given_up(replace(ended, reason="engine_killer")) if killer else ended


def budget_spent(claim: Claim, usage: AttemptUsage = NO_USAGE) -> Finish:
    """The job's compute budget is used up."""
    used = claim.used_seconds + usage.engine.compute_seconds
    before = f"; the last output was rejected: {claim.previous['reason']}" if claim.previous else ""
    detail = f"{used:.4g} of {claim.max_compute_seconds:g} seconds are used{before}"
    return hopeless(claim, "budget_spent", detail, usage)


def released(claim: Claim, reason: str, detail: str | None = None, usage: AttemptUsage = NO_USAGE) -> Finish:
    """Release a job that did not finish here, through no fault of its own."""
    return Finish(
        claim.id,
        claim.attempt,
        JobState.QUEUED,
        Outcome.RELEASED,
        Event.RELEASED,
        reason,
        _detail(detail) if detail else None,
        usage=usage,
    )


def stopped(claim: Claim, reason: StopReason | None, usage: AttemptUsage = NO_USAGE) -> Finish:
    """The outcome of a job stopped while it ran: cancelled, past its deadline, or by a shutdown."""
    if reason is StopReason.CANCELLED:
        state, outcome, event, why = JobState.CANCELLED, Outcome.CANCELLED, Event.CANCELLED, None
    elif reason is StopReason.EXPIRED:
        state, outcome, event, why = JobState.EXPIRED, Outcome.EXPIRED, Event.EXPIRED, "deadline"
    else:
        return released(claim, "shutdown", usage=usage)
    return Finish(claim.id, claim.attempt, state, outcome, event, why, "while it ran", usage=usage)


def unstorable(finish: Finish, detail: str) -> Finish:
    """Postgres refuses this row: end the job without the output that cannot be written."""
    ended = replace(
        finish,
        outcome=Outcome.FAILED,
        reason="unstorable",
        detail=_detail(detail),
        judged=None,
        follow_ups=(),
        needs=None,
    )
    return _given_up(ended)


def storable(text: str) -> str:
    """`text` as Postgres can store it: NUL and lone surrogates become U+FFFD."""
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _detail(text: str) -> str:
    return " ".join(storable(text).split())[:MAX_DETAIL_LENGTH]


def _used_up(claim: Claim) -> bool:
    return claim.failures + 1 >= claim.max_attempts
