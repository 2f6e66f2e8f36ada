"""`Finish`: how an attempt ended, as the statement `worker/finish` writes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from thothy_ai.db.states import ArtifactVerdict, Event, JobState, Outcome, ReviewState
from thothy_ai.engine.api import Usage
from thothy_ai.jobs.api.verdict import Finding
from thothy_ai.plans.running_call import NOTHING_USED
from thothy_ai.queue.canonical import Canonical
from thothy_ai.queue.follow_ups import follow_up_row
from thothy_ai.worker.record.claims import AttemptRef, Claim

MAX_COMPARISONS = 4  # of an output with artifacts accepted meanwhile, since many alike can come at once


@dataclass(frozen=True, slots=True)
class AttemptUsage:
    """The usage of an attempt on the engine `engine_session_id` with its number of `devices`.

    `verification_seconds` are those of its calls that verify; `saved_tokens` the rest of the budgets of calls that were
    stopped early.
    """

    engine_session_id: UUID | None = None
    engine: Usage = NOTHING_USED
    verification_seconds: float = 0.0
    saved_tokens: int = 0
    devices: int = 1

    @property
    def device_seconds(self) -> float:
        """Seconds of all of the engine's devices together."""
        return self.devices * self.engine.compute_seconds


NO_USAGE = AttemptUsage()


@dataclass(frozen=True, slots=True)
class Judged:
    """An output and the validators' verdict; `editable` says that a person may edit it if it is rejected."""

    verdict: ArtifactVerdict
    locale: str
    body: dict[str, Any] | None
    text: str
    provenance: dict[str, Any] | None = None
    verification: dict[str, Any] | None = None
    signature: tuple[int, ...] = ()
    findings: tuple[Finding, ...] = ()
    editable: bool = False


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A job to insert together with the artifact of its parent, which asks for it.

    It inherits tenant, priority, deadline and limits from its parent, and its model unless its kind names one.
    """

    parent: Claim
    wanted: Canonical
    id: UUID = field(default_factory=uuid7)

    def row(self) -> dict[str, Any]:
        """The parameters of the statement `queue/follow_ups`."""
        return follow_up_row(self.parent, self.wanted, self.id)


@dataclass(frozen=True, slots=True)
class Finish:
    """How one attempt ended and what becomes of its job; `failures` and `engine_deaths` are added to the job's."""

    id: UUID
    attempt: int
    state: JobState
    outcome: Outcome
    event: Event | None = None
    reason: str | None = None
    detail: str | None = None
    delay_seconds: float = 0.0
    failures: int = 0
    engine_deaths: int = 0
    usage: AttemptUsage = NO_USAGE
    judged: Judged | None = None
    follow_ups: tuple[FollowUp, ...] = ()
    needs: ReviewState | None = None  # what a succeeded job needs from a person
    compared_with: tuple[UUID, ...] = ()  # jobs with similar artifacts that proved different
    comparisons: int = 0
    answered_at: float | None = None  # monotonic: when the engine's result arrived
    drafted: bool = False  # an earlier attempt left a draft that a person can edit

    @property
    def is_draft(self) -> bool:
        """Whether a person can edit the rejected output."""
        return self.outcome is Outcome.REJECTED and self.judged is not None and self.judged.editable

    @property
    def attempt_ref(self) -> AttemptRef:
        return self.id, self.attempt

    @property
    def settles_again(self) -> bool:
        """Whether its artifact stands, and an earlier one of its job may have had follow-ups."""
        return self.state is JobState.SUCCEEDED and self.needs is None and self.attempt > 1

    @property
    def may_be_outdated(self) -> bool:
        """Whether an output that resembles this one may have been accepted since it was compared with others."""
        return bool(self.judged and self.judged.signature) and self.comparisons < MAX_COMPARISONS

    def compared_row(self) -> dict[str, Any]:
        """The parameters of the statement `worker/unseen_similar`."""
        return {
            "id": str(self.id),
            "attempt": self.attempt,
            "compared_with": list(map(str, self.compared_with)),
            "locale": self.judged.locale if self.judged else "",
            "signature": list(self.judged.signature) if self.judged else [],
        }

    def row(self) -> dict[str, Any]:
        """The parameters of the statement `worker/finish`. Plain attribute reads, since this runs for every job."""
        usage, output = self.usage, self.judged
        return {
            "id": str(self.id),
            "attempt": self.attempt,
            "state": self.state,
            "outcome": self.outcome,
            "event": self.event,
            "reason": self.reason,
            "detail": self.detail,
            "delay_seconds": self.delay_seconds,
            "failures": self.failures,
            "engine_deaths": self.engine_deaths,
            "engine_session_id": str(usage.engine_session_id) if usage.engine_session_id else None,
            "prompt_tokens": usage.engine.prompt_tokens,
            "cached_tokens": usage.engine.cached_tokens,
            "output_tokens": usage.engine.output_tokens,
            "compute_seconds": usage.engine.compute_seconds,
            "verification_seconds": usage.verification_seconds,
            "saved_tokens": usage.saved_tokens,
            "verdict": output.verdict if output else None,
            "locale": output.locale if output else None,
            "body": output.body if output else None,
            "text": output.text if output else None,
            "provenance": output.provenance if output else None,
            "verification": output.verification if output else None,
            "findings": [finding.stored for finding in output.findings] if output else [],
            "signature": (output.signature or None) if output else None,
            "draft": self.is_draft,
            "needs": self.needs,
        }


def alike(finishes: Iterable[Finish]) -> frozenset[AttemptRef]:
    """The outputs of a batch whose signature shares an element with an earlier one's."""
    seen: set[tuple[str, int]] = set()
    found = set()
    for finish in finishes:
        judged = finish.judged
        signature = {(judged.locale, element) for element in judged.signature} if judged else set()
        if signature & seen:
            found.add(finish.attempt_ref)
        seen |= signature
    return frozenset(found)
