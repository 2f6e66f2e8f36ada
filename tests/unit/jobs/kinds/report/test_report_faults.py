"""Faults of a report with scripted answers: what is written again, and what rejects the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.scripted_report import (
    KIND,
    OUTLINE,
    REQUEST,
    SECTIONS,
    SOURCE,
    heading_in,
    judged,
    report,
    scripted,
    step_of,
)
from thothy_ai.jobs import Report, ReportSection, registry
from thothy_ai.jobs.api.plan import Call, Context, End, Output, Plan, Previous, run
from thothy_ai.jobs.api.verdict import RejectionReason


def in_turn(*answers: Callable[[Call], Output]) -> Callable[[Call], Output]:
    remaining = iter(answers)

    def answer(call: Call) -> Output:
        return next(remaining)(call)

    return answer


def changed(heading: str, **values: object) -> dict[str, dict[str, Any]]:
    return SECTIONS | {heading: SECTIONS[heading] | values}


BAD_SECTIONS: list[tuple[dict[str, object], str]] = [
    ({"quotes": ["Nordstern sold all of its beds at once."]}, "quote_not_in_source"),
    (
        {
            "paragraphs": [
                "Demand grew a lot in the last year, says Jonathan Berkeley. Lune Rail has new routes and is sold out."
            ]
        },
        "name_not_in_source",
    ),
    (
        {
            "paragraphs": [
                (
                    "Die Nachfrage nach Reisen in der Nacht ist bei Nordstern stark gewachsen. Auch Lune Rail hat neue "
                    "Linien von Paris aus eröffnet."
                )
            ]
        },
        "wrong_language",
    ),
    (
        {
            "paragraphs": [
                (
                    "The operator Nordstern carried 1.9 million overnight passengers last year, 28 percent more than "
                    "in the year before. A private company, Lune Rail, opened lines from Paris to Copenhagen and Rome."
                )
            ]
        },
        "copied_from_source",
    ),
    ({"paragraphs": SECTIONS["Too few cars"]["paragraphs"]}, "near_duplicate"),
    ({"paragraphs": ["As an AI language model, I cannot write this section. I am sorry about that."]}, "refusal"),
    ({"paragraphs": ["Beds are full. It is so."]}, "too_short"),
]


@pytest.mark.parametrize(("values", "reason"), BAD_SECTIONS)
def test_a_bad_section_is_repaired_or_rejects_the_report(values: dict[str, object], reason: str) -> None:
    bad = changed("What a bed costs" if reason == "near_duplicate" else "Record demand", **values)
    repaired: list[str] = []

    def answer(call: Call) -> Output:
        if call.step == "repair":
            repaired.append(call.messages[-1].content)
            return scripted()(call)
        return scripted(sections=bad)(call)

    assert judged(answer).accepted
    assert len(repaired) == 1
    assert "An earlier draft was rejected:" in repaired[0]
    verdict = judged(scripted(sections=bad))
    assert (verdict.accepted, verdict.reason) == (False, reason)
    assert len(report(verdict).sections) == 3


@pytest.mark.parametrize(
    ("outline", "reason"),
    [
        (OUTLINE | {"title": "Night trains are what Jonathan Berkeley wants"}, "name_not_in_source"),
        (OUTLINE | {"sections": [OUTLINE["sections"][0]] * 3}, "near_duplicate"),
        (OUTLINE | {"sections": OUTLINE["sections"][:2]}, "too_short"),
        (
            OUTLINE | {"title": "Nachtzüge sind voller als je zuvor, und es fehlen Wagen für alle Reisenden"},
            "wrong_language",
        ),
    ],
)
def test_a_bad_outline_is_made_again_or_rejects_the_report(outline: dict[str, Any], reason: str) -> None:
    if reason == "wrong_language":
        outline |= {
            "sections": [
                section | {"heading": heading}
                for section, heading in zip(
                    OUTLINE["sections"], ("Die Nachfrage wächst", "Zu wenige Wagen", "Was ein Bett kostet"), strict=True
                )
            ]
        }
    assert judged(in_turn(scripted(outline), *[scripted()] * 9)).accepted
    verdict = judged(scripted(outline))
    assert (verdict.reason, verdict.artifact) == (reason, None)


def test_a_bad_summary_is_written_again_or_rejects_the_report() -> None:
    bad = "Nordstern carried more passengers, and its trains were all on time according to Jonathan Berkeley."
    assert judged(in_turn(*[scripted(summary=bad)] * 5, scripted())).accepted
    assert judged(scripted(summary=bad)).reason is RejectionReason.NAME_NOT_IN_SOURCE


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (Output(""), "empty"),
        (Output("[" * 9_000), "off_schema"),
        (Output('{"title":"Night', End.TOKEN_LIMIT), "truncated"),
        (Output("", End.REPETITION), "repetition"),
        (Output("", End.PROMPT_TOO_LONG), "prompt_too_long"),
    ],
)
def test_whatever_comes_back_the_plan_ends_with_a_reason(output: Output, reason: str) -> None:
    assert judged(lambda _: output).reason == reason
    section = registry.find("report_section").plan(ReportSection(source=SOURCE), Context())
    assert run(section, lambda _: output).reason == reason
    only_the_outline = judged(lambda call: scripted()(call) if step_of(call) == "sections" else output)
    assert only_the_outline.reason == reason
    no_summary = judged(lambda call: output if step_of(call) == "summary" else scripted()(call))
    assert (no_summary.reason, report(no_summary).summary) == (reason, "")


def rejected_for(**values: object) -> Context:
    verdict = judged(scripted(sections=changed("Too few cars", **values)))
    assert verdict.reason is not None
    return Context(previous=Previous(verdict.reason, verdict.detail, report(verdict).model_dump(mode="json")))


def test_after_a_rejection_only_the_bad_section_is_written_again() -> None:
    context = rejected_for(quotes=["Nobody said this about any car."])
    steps: list[str] = []

    def answer(call: Call) -> Output:
        steps.append(heading_in(call) or call.step)
        return scripted()(call)

    verdict = judged(answer, context=context)
    assert verdict.accepted
    assert steps == ["Too few cars", "summary"]


@pytest.mark.parametrize("artifact", [None, {}, {"body": "An old one.", "heading": "x"}])
def test_an_attempt_of_which_nothing_can_be_kept_is_made_anew(artifact: dict[str, object] | None) -> None:
    context = Context(previous=Previous(RejectionReason.NEAR_DUPLICATE, "", artifact))
    assert next(KIND.plan(REQUEST, context))[0].step == "outline"


def test_an_attempt_without_a_known_fault_is_made_anew() -> None:
    artifact = report(judged(scripted())).model_dump(mode="json")
    context = Context(previous=Previous(RejectionReason.NEAR_DUPLICATE, "", artifact))
    assert next(KIND.plan(REQUEST, context))[0].step == "outline"


@pytest.mark.parametrize("source", ["| 1 | 2 |\n|---|---|\n| 3 | 4 |\n\nx", "[x](https://example.org)", "Title only"])
def test_a_source_without_sentences_is_rejected_without_a_call(source: str) -> None:
    for plan in (_plan(Report(source=source)), _plan(ReportSection(source=source))):
        verdict = run(plan, lambda _: pytest.fail("called"))
        assert verdict.reason is RejectionReason.EMPTY


def _plan(request: Report | ReportSection) -> Plan:
    return registry.kind_of(request).plan(request, Context())


def test_the_checks_judge_a_whole_report() -> None:
    artifact = report(judged(scripted()))
    assert not any(KIND.plan.checks(REQUEST, artifact))  # type: ignore[attr-defined]
    worse = artifact.model_copy(update={"sections": (artifact.sections[0],) * 2})
    reasons = [found.reason for found in KIND.plan.checks(REQUEST, worse) if found]  # type: ignore[attr-defined]
    assert RejectionReason.NEAR_DUPLICATE in reasons
