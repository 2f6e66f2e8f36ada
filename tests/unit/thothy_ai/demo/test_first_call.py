"""The kind `first_call`: the other kind's first calls, which nothing stops early."""

from __future__ import annotations

import pytest

from thothy_ai.demo.backlog import backlog
from thothy_ai.demo.first_call import KIND, FirstCall
from thothy_ai.jobs import Call, Context, registry


def first_calls(plan: object) -> tuple[Call, ...]:
    calls: tuple[Call, ...] = next(plan)  # type: ignore[call-overload]
    return calls


@pytest.mark.parametrize("kind", ["hook", "report_section", "translation", "trend_summary"])
def test_its_calls_are_the_other_kinds_and_run_to_their_end(kind: str) -> None:
    (job,) = backlog(1, 0, kind)
    theirs = first_calls(registry.find(kind).plan(job, Context()))
    ours = first_calls(KIND.plan(FirstCall.of(job), Context()))
    assert [call.messages for call in ours] == [call.messages for call in theirs]
    assert [call.schema for call in ours] == [call.schema for call in theirs]
    assert [call.sampling for call in ours] == [call.sampling for call in theirs]
    assert any(call.early is not None or call.locale is not None for call in theirs), "the worker would watch them"
    assert {(call.early, call.locale) for call in ours} == {(None, None)}
