"""What no gate rejects: findings that are located, repaired once, and left on the artifact."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Annotated, Any

import pytest

from tests.support.scripted_report import judged, scripted
from tests.unit.jobs.kinds.test_trend_summary import GOOD, REQUEST, SOURCE, changed, verdict_on
from thothy_ai.jobs import Artifact, Context, Hook, OneCall, Output, Rejection, RejectionReason, Request, Sampling
from thothy_ai.jobs.api.plan import run
from thothy_ai.jobs.api.verdict import Place
from thothy_ai.jobs.checks.gates import UNMEASURED, group_of, is_gate, measure, precision
from thothy_ai.jobs.checks.tables import table
from thothy_ai.jobs.schema import prose
from thothy_ai.queue.edits import check_edit

DOUBTFUL = "Cargo bikes: 9,000 sold"


def test_a_doubt_is_repaired_and_gone() -> None:
    verdict, asked = verdict_on(REQUEST, changed("title", DOUBTFUL), {"title": GOOD["title"]})
    assert (verdict.accepted, verdict.findings) == (True, ())
    assert asked.steps == ["write", "repair"]
    assert "'9,000' is not in the source" in asked.calls[1].messages[-1].content


def test_what_stays_in_doubt_is_accepted_with_a_finding_at_its_place() -> None:
    verdict, asked = verdict_on(REQUEST, changed("point", "One dealer sold 4,180 bikes.", 0))
    assert verdict.accepted
    assert asked.steps == ["write", "repair"], "once"
    (finding,) = verdict.findings
    assert finding.reason is RejectionReason.NUMBER_NOT_IN_SOURCE
    assert finding.place == Place("key_points.0.point", 16, 21)
    assert 0.8 < finding.weight < 0.9
    assert finding.stored["by"] == "rule"


def test_a_repair_that_is_worse_is_not_kept() -> None:
    verdict, _ = verdict_on(
        REQUEST, changed("title", DOUBTFUL), {"title": "The cargo bikes that Jonathan Berkeley sells"}
    )
    assert verdict.accepted
    assert verdict.artifact is not None
    assert verdict.artifact.model_dump()["title"] == DOUBTFUL


def test_a_rejected_draft_has_all_its_faults_located() -> None:
    values = changed("title", DOUBTFUL)
    values["key_points"][1]["quote"] = "Every second family has one by now."
    verdict, _ = verdict_on(REQUEST, values, {"title": DOUBTFUL, "key_points_2": values["key_points"][1]})
    assert (verdict.accepted, verdict.reason) == (False, RejectionReason.QUOTE_NOT_IN_SOURCE)
    assert {finding.place and finding.place.part for finding in verdict.findings} == {"title", "key_points.1.quote"}


def test_a_draft_that_is_not_whole_is_kept_as_far_as_it_was_written() -> None:
    broken = deepcopy(GOOD) | {"why_it_matters": 7}
    verdict, _ = verdict_on(REQUEST, broken, Output("["))
    assert (verdict.accepted, verdict.artifact) == (False, None)
    assert verdict.draft is not None
    assert verdict.draft["title"] == GOOD["title"]


class Note(Artifact):
    text: Annotated[str, prose(1, 40)]


class NoteRequest(Request[Note]):
    source: str


def note_plan(check: Callable[[str], Rejection | None]) -> OneCall[NoteRequest, Note]:
    return OneCall(
        artifact=Note,
        prompt=lambda *_: (),
        sampling=lambda _: Sampling(max_tokens=8, n=3),
        checks=lambda _, artifact: (check(artifact.text),),
    )


def noted(check: Callable[[str], Rejection | None]) -> Any:
    return note_plan(check).judge(NoteRequest(source="A lake."), Output(json.dumps({"text": "Nine lakes."})))


@pytest.mark.parametrize(
    "order", [("bad", "doubtful", "good"), ("good", "doubtful", "bad"), ("doubtful", "bad", "good")]
)
def test_of_several_draws_the_one_is_kept_against_which_least_is_found(order: tuple[str, ...]) -> None:
    reasons = {"bad": RejectionReason.BANNED_PHRASE, "doubtful": RejectionReason.NUMBER_NOT_IN_SOURCE}
    plan = note_plan(lambda text: Rejection(reasons[text], "found") if text in reasons else None)
    first, *others = (Output(json.dumps({"text": text})) for text in order)
    verdict = run(plan(NoteRequest(source="A lake."), Context()), lambda _: replace(first, others=tuple(others)))
    assert (verdict.accepted, verdict.artifact) == (True, Note(text="good"))


def test_a_kind_of_yours_may_doubt_too() -> None:
    doubt = Rejection(RejectionReason.NUMBER_NOT_IN_SOURCE, "nine", (0, 4)).at("text")
    verdict = noted(lambda _: doubt)
    assert verdict.accepted
    assert verdict.findings[0].place == Place("text", 0, 4)
    assert not noted(lambda _: Rejection(RejectionReason.BANNED_PHRASE, "contains 'lakes'")).accepted


def test_a_doubtful_section_and_summary_are_left_to_a_person() -> None:
    bad = "Nordstern carried 4 million passengers, and its trains were all on time according to its manager."
    verdict = judged(scripted(summary=bad))
    assert verdict.accepted
    assert [finding.place and finding.place.part for finding in verdict.findings] == ["summary"]


@pytest.mark.parametrize("reason", RejectionReason)
def test_each_reason_is_declared_and_a_gate_is_right(reason: RejectionReason) -> None:
    """A check that finds too much in good texts of a language group is no gate there."""
    declared = table("gates")[reason]
    groups = {name: counts for name, counts in declared.items() if name not in {"gate", "finding_in"}}
    gates = [name for name in groups if declared["gate"] and name not in declared.get("finding_in", ())]
    assert [name for name in gates if groups[name][1] > 1] == []


def test_a_finding_says_what_was_measured_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "thothy_ai.jobs.checks.gates.table", lambda _: {"off_schema": {"gate": True, "English": [3, 1]}}
    )

    def said(reason: RejectionReason, locale: str, weight: float = 0.5, by: str = "rule") -> str:
        return measure({"reason": reason, "weight": weight, "by": by}, locale)

    assert said(RejectionReason.PROMPT_ECHO, "fr") == "not measured in other languages"
    assert said(RejectionReason.OFF_SCHEMA, "en-GB") == "right in 3 of 4 texts in English"
    assert said(RejectionReason.OFF_SCHEMA, "ja") == "not measured in Chinese and Japanese"
    assert said(RejectionReason.UNSUPPORTED, "en", UNMEASURED, "verification") == "not measured"
    assert said(RejectionReason.UNSUPPORTED, "en", 0.83, "verification") == "right in 83% of its doubts"


def test_weights_are_cautious_where_little_was_measured() -> None:
    assert precision(RejectionReason.MUST_MENTION, "en") == UNMEASURED
    assert precision(RejectionReason.BANNED_PHRASE, "en") > 0.7
    assert group_of("zh-Hant") == group_of("ja")
    assert is_gate(RejectionReason.WRONG_LANGUAGE, "en")
    assert not is_gate(RejectionReason.UNKNOWN_WORDS, "en"), "never measured"
    assert not is_gate(RejectionReason.MUST_MENTION, "en"), "never measured"
    assert not is_gate(RejectionReason.NUMBER_NOT_IN_SOURCE, "en")


def findings_of_edit(values: dict[str, Any]) -> list[tuple[str, str]]:
    body = check_edit("trend_summary", REQUEST.model_dump(mode="json"), values)
    return [(found["reason"], found["part"]) for found in body.findings]


def test_a_point_that_denies_its_quote_and_quotes_that_are_exchanged_are_found_in_an_edit() -> None:
    values = changed("point", "Most of these bikes do go down cellar stairs.", 0)
    values["key_points"][0]["quote"] = "Most of these bikes are 2.60 metres long and do not go down cellar stairs."
    assert findings_of_edit(values) == [("contradicts_source", "key_points.0.point")]
    values = deepcopy(GOOD)
    first, _, last = values["key_points"]
    first["quote"], last["quote"] = last["quote"], first["quote"]
    assert findings_of_edit(values) == [("unsupported", "key_points.2.quote")], "the first has too little to tell"


def test_an_editor_may_leave_out_what_was_asked_for() -> None:
    assert findings_of_edit(GOOD | {"key_points": GOOD["key_points"][:2]}) == []
    verdict, _ = verdict_on(REQUEST, GOOD | {"key_points": GOOD["key_points"][:2]})
    assert (verdict.reason, verdict.detail) == (RejectionReason.TOO_SHORT, "2 key points, fewer than 3")
    hook = Hook(source=SOURCE, variants=3)
    one = {"variants": [{"angle": "the news", "text": "In Vauban, the second car now has two wheels."}]}
    assert check_edit("hook", hook.model_dump(mode="json"), one).findings == []
    two = {"variants": [*one["variants"], {"angle": "a question", "text": "Would you sell your car for a bike?"}]}
    single = check_edit("hook", hook.model_dump(mode="json") | {"variants": 1}, two)
    assert [(found["reason"], found["part"]) for found in single.findings] == [("too_long", "variants")]
