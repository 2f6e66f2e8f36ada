"""Plans are replayed; whatever a kind does wrong is told apart by when it does it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support import echo_kind, plan_kind
from thothy_ai.jobs import (
    Call,
    Context,
    Finding,
    JobKind,
    Output,
    Plan,
    Policy,
    Previous,
    RejectionReason,
    Request,
    Verdict,
    registry,
)  # fmt: skip
from thothy_ai.plans.advance import MAX_STEPS, Judgement, PlanError, PlannedJob, PlanStep, advance, near_duplicate
from thothy_ai.plans.judge_messages import ANSWERS, TASKS, AdvanceTask

PARTS = PlannedJob("parts", {"parts": ["ok one", "ok two"]})
OUTPUTS = (Output('{"echo": "ok one"}'), Output('{"echo": "ok two"}'))
CALL = Call((), {}, plan_kind.SAMPLING)
HEADER = 4  # bytes of a frame before its payload


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_extra", {"parts": plan_kind.KIND, "echo": echo_kind.KIND})


def broken(monkeypatch: pytest.MonkeyPatch, plan: object) -> PlannedJob:
    """A job of a kind with this plan."""

    class Odd(Request):
        """Its own class: a kind is found by it."""

    artifact = plan_kind.PartsArtifact
    kind = JobKind("odd", Odd, artifact, plan, lambda _: "en", lambda _: "s")  # type: ignore[arg-type]
    monkeypatch.setitem(registry._extra, "odd", kind)
    return PlannedJob("odd", {})


def test_a_plan_is_followed_step_by_step_to_its_judgement() -> None:
    first = advance(PARTS, [])
    assert isinstance(first, PlanStep)
    assert (len(first.calls), first.locale, first.version) == (2, "en", "7")
    second = advance(PARTS, [OUTPUTS])
    assert isinstance(second, PlanStep)
    assert [call.step for call in second.calls] == ["verify"]
    end = advance(PARTS, [OUTPUTS, (Output("{}"),)])
    assert isinstance(end, Judgement)
    assert (end.accepted, end.body, end.version) == (True, {"text": "ok one ok two"}, "7")
    assert end.verification is not None
    assert len(end.signature) > 1


def test_under_a_strict_policy_the_heaviest_finding_rejects(monkeypatch: pytest.MonkeyPatch) -> None:
    doubts = tuple(
        Finding(RejectionReason.NUMBER_NOT_IN_SOURCE, detail, weight=weight)
        for detail, weight in (("perhaps", 0.2), ("likely", 0.9), ("maybe", 0.5))
    )

    def plan(*_: object) -> Plan:
        yield (CALL,)
        return Verdict.accept(plan_kind.PartsArtifact(text="ok"), findings=doubts)

    job = broken(monkeypatch, plan)
    lenient, strict = (advance(replace(job, policy=policy), [(Output(""),)]) for policy in (None, Policy.STRICT))
    assert isinstance(lenient, Judgement)
    assert (lenient.accepted, lenient.policy, lenient.findings) == (True, Policy.REVIEW, doubts)
    assert isinstance(strict, Judgement)
    assert (strict.accepted, strict.detail, strict.body) == (False, "likely", {"text": "ok"})
    assert ANSWERS.decode(ANSWERS.encode(strict)[HEADER:]) == strict


def test_a_plan_knows_the_previous_attempt() -> None:
    previous = Previous(RejectionReason.REPETITION, "again", {"text": "ok one"})
    step = advance(PlannedJob("parts", PARTS.request, Context(previous=previous)), [])
    assert isinstance(step, PlanStep)
    assert step.calls[0].messages[0].content == "ok one after repetition of ok one"


@pytest.mark.parametrize(
    ("job", "reason", "permanent"),
    [
        (PlannedJob("nothing", {}), "unknown_kind", True),
        (PlannedJob("parts", {"no": 1}), "invalid_job", True),
        (PlannedJob("parts", None), "invalid_job", True),
    ],
)
def test_what_cannot_begin_says_why(job: PlannedJob, reason: str, permanent: bool) -> None:
    with pytest.raises(PlanError) as caught:
        advance(job, [])
    assert (caught.value.reason, caught.value.permanent) == (reason, permanent)


def raises_at_once(*_: object) -> Plan:
    raise ZeroDivisionError("no source")


def yields_nothing(*_: object) -> Iterator[object]:
    yield ()


def yields_something_else(*_: object) -> Iterator[object]:
    yield ("call me",)


@pytest.mark.parametrize("plan", [raises_at_once, yields_nothing, yields_something_else])
def test_a_kind_that_fails_before_its_first_call_may_be_mended(monkeypatch: pytest.MonkeyPatch, plan: object) -> None:
    with pytest.raises(PlanError, match="kind_error") as caught:
        advance(broken(monkeypatch, plan), [])
    assert not caught.value.permanent


def never_ends(*_: object) -> Iterator[object]:
    while True:
        yield (CALL,)


def returns_something_else(*_: object) -> Iterator[object]:
    yield (CALL,)
    return "accepted"


def raises_later(*_: object) -> Iterator[object]:
    yield (CALL,)
    raise ZeroDivisionError("no source")


@pytest.mark.parametrize(
    ("plan", "steps", "words"),
    [
        (never_ends, MAX_STEPS, "more than 100 steps"),
        (returns_something_else, 1, "TypeError"),
        (raises_later, 1, "ZeroDivisionError('no source')"),
    ],
)
def test_a_kind_that_fails_later_rejects_the_output(
    monkeypatch: pytest.MonkeyPatch, plan: object, steps: int, words: str
) -> None:
    judged = advance(broken(monkeypatch, plan), [(Output("{}"),)] * steps)
    assert isinstance(judged, Judgement)
    assert (judged.accepted, judged.reason, judged.locale) == (False, RejectionReason.VALIDATOR_ERROR, "en")
    assert words in judged.detail


def test_near_duplicates_are_compared_by_what_the_kind_says() -> None:
    text = "ok Families in Freiburg buy cargo bikes in place of a second car, and dealers cannot keep up."
    found = near_duplicate("parts", {"text": text}, [{"text": "ok Something else."}, {"text": text}, {"old": "shape"}])
    assert found is not None
    assert found.reason is RejectionReason.NEAR_DUPLICATE
    assert near_duplicate("parts", {"text": text}, [{"old": "shape"}]) is None
    assert near_duplicate("echo", {"echo": "ok"}, [{"echo": "ok"}]) is None, "a kind that compares nothing"


@pytest.mark.parametrize("answered", [[], [OUTPUTS], [OUTPUTS, (Output("{}"),)], [(Output("{"), OUTPUTS[1])]])
def test_what_crosses_to_another_process_is_what_it_was(answered: list[tuple[Output, ...]]) -> None:
    previous = Previous(RejectionReason.REPETITION, "\ud800 again", {"text": "ok one", "number": 2**70})
    job = PlannedJob("parts", PARTS.request, Context(4096, 7, previous))
    task = AdvanceTask(job, tuple(answered))
    assert TASKS.decode(TASKS.encode(task)[HEADER:]) == task
    step = advance(job, answered)
    assert ANSWERS.decode(ANSWERS.encode(step)[HEADER:]) == step
