"""How attempts end, case by case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thothy_ai.db.states import Event, JobState, Outcome, ReviewState
from thothy_ai.engine.api import Usage
from thothy_ai.jobs import Finding, Policy, Rejection, RejectionReason
from thothy_ai.jobs.api.verdict import Place
from thothy_ai.plans.advance import Judgement
from thothy_ai.queue.canonical import Canonical
from thothy_ai.worker import outcomes
from thothy_ai.worker.job_in_flight import StopReason
from thothy_ai.worker.outcomes import Retry
from thothy_ai.worker.record.claims import Claim
from thothy_ai.worker.record.finish import AttemptUsage, Finish

CLAIM = Claim(
    id=UUID("01890000-0000-7000-8000-000000000001"),
    dispatch_no=1,
    attempt=1,
    tenant="t",
    kind="echo",
    failures=0,
    max_attempts=3,
    max_compute_seconds=None,
    engine_deaths=0,
    priority=0,
    deadline=None,
    source_key="s",
    request={},
)
LAST = replace(CLAIM, attempt=7, failures=2)
DRAFTED = replace(LAST, previous={"reason": "truncated", "detail": "", "artifact": None, "drafted": True})
RETRY = Retry(base_seconds=2, cap_seconds=300)
USAGE = AttemptUsage(UUID(int=5), Usage(10, 4, 5, 0.25))
ACCEPTED = Judgement(True, None, "", "en", "1", {"echo": "ok then"})


DOUBT = Finding(RejectionReason.NUMBER_NOT_IN_SOURCE, "'9' is not in the source", Place("echo", 0, 1))


def rejected(reason: RejectionReason, policy: Policy = Policy.PUBLISH) -> Judgement:
    return Judgement(False, reason, "because", "en", "1", {"echo": "ok then"}, policy=policy)


def test_an_accepted_output_succeeds_and_costs_no_failure() -> None:
    finish = outcomes.judged(CLAIM, ACCEPTED, "raw", USAGE)
    assert (finish.state, finish.outcome, finish.event, finish.reason) == (
        JobState.SUCCEEDED,
        Outcome.SUCCEEDED,
        None,
        None,
    )
    assert (finish.failures, finish.engine_deaths, finish.usage) == (0, 0, USAGE)
    assert finish.judged is not None
    assert (finish.judged.verdict, finish.judged.body, finish.judged.text) == ("accepted", {"echo": "ok then"}, "raw")


def test_a_rejected_output_is_drawn_again_at_once() -> None:
    finish = outcomes.judged(CLAIM, rejected(RejectionReason.REPETITION), "raw", USAGE)
    assert (finish.state, finish.outcome, finish.event) == (JobState.QUEUED, Outcome.REJECTED, Event.REJECTED)
    assert (finish.reason, finish.failures, finish.delay_seconds) == ("repetition", 1, 0)
    assert finish.judged is not None
    assert finish.judged.verdict == "rejected"


@pytest.mark.parametrize(
    ("claim", "reason"), [(LAST, RejectionReason.REPETITION), (CLAIM, RejectionReason.PROMPT_TOO_LONG)]
)
def test_a_rejected_output_is_the_end_when_no_draw_is_left_or_none_can_help(
    claim: Claim, reason: RejectionReason
) -> None:
    finish = outcomes.judged(claim, rejected(reason), "raw", USAGE)
    assert (finish.state, finish.outcome, finish.event) == (JobState.DEAD, Outcome.REJECTED, Event.DEAD)
    assert (finish.reason, finish.failures) == (reason.value, 1)


@pytest.mark.parametrize(
    ("policy", "needs"), [(Policy.REVIEW, ReviewState.NEEDS_REVIEW), (Policy.PUBLISH, None), (Policy.STRICT, None)]
)
def test_a_person_reviews_what_was_accepted_with_findings(policy: Policy, needs: ReviewState | None) -> None:
    asked = (Canonical("echo", "{}", "s"),)
    finish = outcomes.judged(CLAIM, replace(ACCEPTED, findings=(DOUBT,), policy=policy, follow_ups=asked), "raw", USAGE)
    assert (finish.state, finish.needs) == (JobState.SUCCEEDED, needs)
    assert len(finish.follow_ups) == (0 if needs else 1), "they come with the approval"
    assert finish.judged is not None
    assert finish.judged.findings == (DOUBT,)
    assert outcomes.judged(CLAIM, ACCEPTED, "raw", USAGE).needs is None


def test_a_person_edits_the_best_draft_of_a_job_that_gates_rejected() -> None:
    last = outcomes.judged(LAST, rejected(RejectionReason.TRUNCATED, Policy.REVIEW), "raw", USAGE)
    assert (last.state, last.outcome, last.event) == (JobState.SUCCEEDED, Outcome.REJECTED, Event.KEPT)
    assert (last.reason, last.failures, last.needs) == ("truncated", 1, ReviewState.NEEDS_EDIT)
    first = outcomes.judged(CLAIM, rejected(RejectionReason.TRUNCATED, Policy.REVIEW), "raw", USAGE)
    assert (first.state, first.needs) == (JobState.QUEUED, None)
    like_another = Rejection(RejectionReason.NEAR_DUPLICATE, "nearly the same")
    duplicate = outcomes.duplicate(LAST, outcomes.judged(LAST, ACCEPTED, "raw", USAGE), like_another)
    assert (duplicate.state, duplicate.needs) == (JobState.SUCCEEDED, ReviewState.NEEDS_EDIT)


def test_without_any_draft_there_is_nothing_to_edit() -> None:
    unread = replace(rejected(RejectionReason.EMPTY, Policy.REVIEW), body=None)
    assert outcomes.judged(LAST, unread, "", USAGE).state is JobState.DEAD
    assert outcomes.judged(DRAFTED, unread, "", USAGE).needs is ReviewState.NEEDS_EDIT


@pytest.mark.parametrize(
    "end",
    [
        lambda claim: outcomes.budget_spent(replace(claim, max_compute_seconds=1.0)),
        lambda claim: outcomes.failed(claim, "kind_error", "x", RETRY, 0.5),
        lambda claim: outcomes.hopeless(claim, "prompt_too_long", "9000 tokens"),
        lambda claim: outcomes.engine_died(replace(claim, engine_deaths=3), "gone"),
        lambda claim: outcomes.unstorable(outcomes.judged(claim, rejected(RejectionReason.EMPTY), "", USAGE), "no"),
    ],
    ids=["budget", "failures", "refused by the engine", "engine killer", "unstorable"],
)
def test_a_job_that_is_given_up_keeps_the_draft_of_an_earlier_attempt(end: Callable[[Claim], Finish]) -> None:
    kept, gone = end(DRAFTED), end(LAST)
    assert (kept.state, kept.needs, kept.event) == (JobState.SUCCEEDED, ReviewState.NEEDS_EDIT, Event.KEPT)
    assert (gone.state, gone.needs, gone.event) == (JobState.DEAD, None, Event.DEAD)
    assert (kept.outcome, kept.reason, kept.is_draft) == (gone.outcome, gone.reason, False)


def test_nobody_can_edit_what_cannot_be_read_nor_wants_what_is_cancelled_or_too_late() -> None:
    assert outcomes.dead(DRAFTED, "unknown_kind", "x").state is JobState.DEAD
    assert outcomes.refused(DRAFTED, 400, "invalid_value", "x", {}).state is JobState.DEAD
    for reason in (StopReason.CANCELLED, StopReason.EXPIRED):
        assert outcomes.stopped(DRAFTED, reason).needs is None


def test_what_can_never_succeed_is_dead_at_once() -> None:
    finish = outcomes.dead(CLAIM, "prompt_too_long", "9000 tokens")
    assert (finish.state, finish.outcome, finish.reason) == (JobState.DEAD, Outcome.FAILED, "prompt_too_long")


def test_a_fault_is_retried_later_until_failures_are_used_up() -> None:
    first = outcomes.failed(CLAIM, "engine_error", "x", RETRY, chance=0.5)
    assert (first.state, first.event, first.delay_seconds, first.failures) == (JobState.QUEUED, Event.RETRIED, 1.0, 1)
    last = outcomes.failed(LAST, "engine_error", "x", RETRY, chance=0.5)
    assert (last.state, last.event, last.outcome) == (JobState.DEAD, Event.DEAD, Outcome.FAILED)


@given(failures=st.integers(1, 10_000), chance=st.floats(0, 1, exclude_max=True))
def test_a_delay_is_never_longer_than_the_cap(failures: int, chance: float) -> None:
    assert 0 <= RETRY.delay(failures, chance) <= min(300, 2.0 ** min(failures, 30))


def test_a_dead_engine_is_no_failure_of_the_job_until_the_fourth() -> None:
    first = outcomes.engine_died(CLAIM, "gone")
    assert (first.state, first.outcome, first.reason) == (JobState.QUEUED, Outcome.LOST, "engine_lost")
    assert (first.failures, first.engine_deaths) == (0, 1)
    third = outcomes.engine_died(replace(CLAIM, engine_deaths=2), "gone")
    assert (third.state, third.reason, third.event) == (JobState.QUEUED, "engine_lost", Event.LOST)
    fourth = outcomes.engine_died(replace(CLAIM, engine_deaths=3), "gone")
    assert (fourth.state, fourth.reason, fourth.event) == (JobState.DEAD, "engine_killer", Event.DEAD)


def test_a_release_uses_nothing_up() -> None:
    finish = outcomes.released(LAST, "shutdown")
    assert (finish.state, finish.outcome, finish.event) == (JobState.QUEUED, Outcome.RELEASED, Event.RELEASED)
    assert (finish.failures, finish.engine_deaths, finish.delay_seconds) == (0, 0, 0)


def test_cancelled_and_expired_are_terminal() -> None:
    assert outcomes.stopped(CLAIM, StopReason.CANCELLED).state is JobState.CANCELLED
    assert outcomes.stopped(CLAIM, StopReason.EXPIRED).state is JobState.EXPIRED


def test_what_postgres_refuses_dies_without_its_output() -> None:
    finish = outcomes.unstorable(outcomes.judged(CLAIM, ACCEPTED, "raw", USAGE), "no")
    assert (finish.state, finish.reason, finish.judged, finish.usage) == (JobState.DEAD, "unstorable", None, USAGE)


@given(st.text(st.characters()) | st.just("\0a\ud800"))
def test_any_text_can_be_stored(text: str) -> None:
    clean = outcomes.storable(text)
    assert "\0" not in clean
    assert clean.encode().decode() == clean
    if "\0" not in text:
        assert outcomes.storable(clean) == clean


def test_a_retry_draws_with_another_seed_and_a_repetition_with_the_same() -> None:
    again = replace(CLAIM, dispatch_no=2, attempt=2)
    assert CLAIM.seed != again.seed
    assert CLAIM.seed == replace(CLAIM, dispatch_no=9).seed
    assert 0 <= again.seed < 2**63
