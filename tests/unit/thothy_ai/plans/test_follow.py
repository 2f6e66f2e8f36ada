"""A plan is followed to its judgement, and its log has what its calls used, however it ended."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.support.fake_engine import FAILED_USAGE, FakeClient
from thothy_ai.engine.api import Usage
from thothy_ai.engine.api.errors import GrammarError
from thothy_ai.jobs import registry
from thothy_ai.plans.advance import Judgement, PlannedJob
from thothy_ai.plans.follow import CallLog, first_requests, follow
from thothy_ai.plans.requests import RequestFactory

REQUESTS = RequestFactory("key", "parts", 7, "tenant")


@pytest.fixture(autouse=True)
def _kinds() -> None:
    registry.load_extra(("tests.support.plan_kind",))


def job(*parts: str) -> PlannedJob:
    return PlannedJob("parts", {"parts": list(parts), "verification": "ok verification", "locale": "en"})


def followed(client: FakeClient, planned: PlannedJob, log: CallLog) -> Judgement:
    return asyncio.run(follow(planned, REQUESTS, client.submit, log))


def test_calls_are_numbered_across_steps_and_their_usage_adds_up() -> None:
    client, log = FakeClient(), CallLog()
    assert followed(client, job("ok one", "ok two"), log).accepted
    assert [request.id for request in client.submitted] == ["key.0", "key.1", "key.2"]
    assert [len(outputs) for outputs in log.answered] == [2, 1]
    assert log.usage == Usage(30, 12, 15, 0.75)
    assert log.verification_usage == Usage(10, 4, 5, 0.25)
    assert log.text.splitlines() == ['{"echo": "ok one"}', '{"echo": "ok two"}', '{"echo": "ok verification"}']


def test_a_call_that_fails_aborts_the_others_of_its_step_and_all_are_in_the_log() -> None:
    client, log = FakeClient(), CallLog()
    with pytest.raises(GrammarError):
        followed(client, job("hang on", "bad grammar"), log)
    assert log.usage.compute_seconds == FAILED_USAGE.compute_seconds + 0.25
    assert log.answered == []
    assert isinstance(log.sent[1].error, GrammarError)


def test_before_each_step_the_caller_may_end_the_attempt() -> None:
    client, log = FakeClient(), CallLog()

    def check() -> None:
        if log.sent:
            raise LookupError

    with pytest.raises(LookupError):
        asyncio.run(follow(job("ok one"), REQUESTS, client.submit, log, before_step=check))
    assert len(client.submitted) == 1


@pytest.mark.parametrize(
    ("own", "installed", "sent"),
    [(None, None, None), (512, None, 512), (512, 256, 256), (None, 256, 256), (512, 0, None)],
)
def test_the_installation_s_budget_replaces_the_kind_s(
    own: int | None, installed: int | None, sent: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = replace(registry.find("parts"), kv_budget=own)
    monkeypatch.setitem(registry._extra, "parts", kind)
    client, planned = FakeClient(), replace(job("ok one"), kv_budget=installed)
    followed(client, planned, CallLog())
    assert [request.kv_budget for request in client.submitted] == [sent, None]  # the last one verifies
    assert first_requests(planned, REQUESTS) == client.submitted[:1]


def test_the_first_requests_are_those_that_would_be_sent() -> None:
    client = FakeClient()
    followed(client, job("ok one", "ok two"), CallLog())
    assert first_requests(job("ok one", "ok two"), REQUESTS) == client.submitted[:2]
