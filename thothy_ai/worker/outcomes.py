"""How attempts end: from a verdict, an engine's error or a stop to the row that `finish` writes. Pure.

accepted                                  succeeded
rejected, another draw may do better      queued at once, failure counted      dead when failures are used up
rejected for good                         dead
refused by the engine, malformed job      dead at once
fault of the kind or the engine           queued after a delay, failure counted dead when failures are used up
engine lost                               queued, engine death counted         dead at the third
shutdown, engine away, draining, stopped,
connection to a living engine lost        queued at once, nothing counted
cancelled, deadline passed                cancelled, expired
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from thothy_ai.db.states import Event, JobState, Outcome
from thothy_ai.db.states import Verdict as StoredVerdict
from thothy_ai.engine.api import GenerationResult
from thothy_ai.engine.api import Usage as EngineUsage
from thothy_ai.jobs import Verdict
from thothy_ai.worker.claims import Claim
from thothy_ai.worker.follow_ups import FollowUp

ENGINE_DEATHS = 3  # a job in flight at so many engine deaths, alone at the last one, is what kills it
MAX_DETAIL_LENGTH = 500
NO_ENGINE_USAGE = EngineUsage(prompt_tokens=0, cached_tokens=0, output_tokens=0, compute_seconds=0.0)


@dataclass(frozen=True, slots=True)
class Retry:
    """When a failed job may run again: full jitter over an exponential (Brooker, AWS, 2015), in seconds."""

    base_seconds: float
    cap_seconds: float

    def delay(self, failures: int, chance: float) -> float:
        """Seconds to wait after `failures` failures; `chance` is uniform in [0, 1)."""
        return chance * min(self.cap_seconds, self.base_seconds * 2.0 ** min(failures - 1, 30))


@dataclass(frozen=True, slots=True)
class Usage:
    """What an attempt cost on the engine `engine_session_id`."""

    engine_session_id: UUID | None = None
    engine: EngineUsage = NO_ENGINE_USAGE

    @classmethod
    def of(cls, result: GenerationResult, engine_session_id: UUID | None) -> Usage:
        """The usage that a result reports."""
        return cls(engine_session_id, result.usage)


NOTHING = Usage()


@dataclass(frozen=True, slots=True)
class Judged:
    """An output with what validators said of it."""

    verdict: StoredVerdict
    locale: str
    body: dict[str, Any] | None
    text: str


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
    usage: Usage = NOTHING
    judged: Judged | None = None
    follow_ups: tuple[FollowUp, ...] = ()
    answered_at: float | None = None  # monotonic: when the engine's result arrived


def judged(
    claim: Claim, verdict: Verdict, text: str, locale: str, usage: Usage, follow_ups: tuple[FollowUp, ...] = ()
) -> Finish:
    """An output came and was judged; `follow_ups` are the jobs that an accepted artifact asks for."""
    body = verdict.artifact.model_dump(mode="json") if verdict.artifact is not None else None
    if verdict.accepted:
        output = Judged(StoredVerdict.ACCEPTED, locale, body, storable(text))
        return Finish(
            claim.id,
            claim.attempt,
            JobState.SUCCEEDED,
            Outcome.SUCCEEDED,
            usage=usage,
            judged=output,
            follow_ups=follow_ups,
        )
    again = verdict.reason is not None and verdict.reason.retryable and not _used_up(claim)
    return Finish(
        claim.id,
        claim.attempt,
        JobState.QUEUED if again else JobState.DEAD,
        Outcome.REJECTED,
        Event.REJECTED if again else Event.DEAD,
        str(verdict.reason or "rejected"),
        _detail(verdict.detail),
        failures=1,
        usage=usage,
        judged=Judged(StoredVerdict.REJECTED, locale, body, storable(text)),
    )


def hopeless(claim: Claim, reason: str, detail: str) -> Finish:
    """It can never succeed, however often it is tried."""
    return Finish(
        claim.id, claim.attempt, JobState.DEAD, Outcome.FAILED, Event.DEAD, reason, _detail(detail), failures=1
    )


def failed(claim: Claim, reason: str, detail: str, retry: Retry, chance: float, usage: Usage = NOTHING) -> Finish:
    """It failed, and may do better later."""
    again = not _used_up(claim)
    return Finish(
        claim.id,
        claim.attempt,
        JobState.QUEUED if again else JobState.DEAD,
        Outcome.FAILED,
        Event.RETRIED if again else Event.DEAD,
        reason,
        _detail(detail),
        delay_seconds=retry.delay(claim.failures + 1, chance),
        failures=1,
        usage=usage,
    )


def engine_died(claim: Claim, detail: str, usage: Usage = NOTHING) -> Finish:
    """The engine went away with the job in flight."""
    killer = claim.engine_deaths + 1 >= ENGINE_DEATHS
    return Finish(
        claim.id,
        claim.attempt,
        JobState.DEAD if killer else JobState.QUEUED,
        Outcome.LOST,
        Event.DEAD if killer else Event.LOST,
        "engine_killer" if killer else "engine_lost",
        _detail(detail),
        engine_deaths=1,
        usage=usage,
    )


def released(claim: Claim, reason: str, detail: str | None = None, usage: Usage = NOTHING) -> Finish:
    """It was not to finish here, and that is not the job's fault."""
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


def cancelled(claim: Claim, usage: Usage = NOTHING) -> Finish:
    """Somebody cancelled it while it ran."""
    return Finish(
        claim.id,
        claim.attempt,
        JobState.CANCELLED,
        Outcome.CANCELLED,
        Event.CANCELLED,
        detail="while it ran",
        usage=usage,
    )


def expired(claim: Claim, usage: Usage = NOTHING) -> Finish:
    """Its deadline passed while it ran."""
    return Finish(
        claim.id,
        claim.attempt,
        JobState.EXPIRED,
        Outcome.EXPIRED,
        Event.EXPIRED,
        "deadline",
        "while it ran",
        usage=usage,
    )


def unstorable(finish: Finish, detail: str) -> Finish:
    """Postgres refuses this very row: end the job without the output that cannot be written."""
    return replace(
        finish,
        state=JobState.DEAD,
        outcome=Outcome.FAILED,
        event=Event.DEAD,
        reason="unstorable",
        detail=_detail(detail),
        judged=None,
        follow_ups=(),
    )


def storable(text: str) -> str:
    """`text` without what Postgres cannot hold: NUL and lone surrogates become U+FFFD."""
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _detail(text: str) -> str:
    return " ".join(storable(text).split())[:MAX_DETAIL_LENGTH]


def _used_up(claim: Claim) -> bool:
    return claim.failures + 1 >= claim.max_attempts
