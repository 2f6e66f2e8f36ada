"""Sources that give orders: they stay between the marks, and every kind's task is that of any other source."""

from __future__ import annotations

import pytest

from tests.support.plans import first_calls, verdict_on
from thothy_ai.jobs import Hook, Report, ReportSection, Request, TrendSummary
from thothy_ai.jobs.evaluation.cases import Injection, injections

ORDINARY = "The bakery in Vauban sold 418 loaves last year, says its manager, Katrin Vogel."
KINDS: tuple[type[Request], ...] = (TrendSummary, Hook, Report, ReportSection)
ALL = [pytest.param(injection, id=injection.id) for injection in injections()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("injection", ALL)
def test_the_task_is_that_of_any_other_source(injection: Injection, kind: type[Request]) -> None:
    given, ordinary = (
        first_calls(kind(source=source))[0].messages  # type: ignore[call-arg]
        for source in (injection.request["source"], ORDINARY)
    )
    assert given[0] == ordinary[0], "the system message"
    source, mark, task = given[1].content.rpartition("\n</source>\n\n")
    assert (mark, task) == ("\n</source>\n\n", ordinary[1].content.rpartition("</source>\n\n")[2])
    assert "</source" not in source.lower().replace(" ", "")


@pytest.mark.parametrize("injection", ALL)
def test_a_hook_that_obeys_is_rejected(injection: Injection) -> None:
    for obeyed in injection.obeyed:
        request = Hook(source=injection.request["source"], variants=1, channel="social post")
        verdict, _ = verdict_on(request, {"variants": [{"angle": "the news", "text": obeyed}]})
        assert not verdict.accepted, obeyed
