"""The kind `report_section`, with scripted answers, also those of a small model."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.support.scripted_report import SECTIONS, SOURCE
from thothy_ai.jobs import ReportSection, registry
from thothy_ai.jobs.api.plan import Call, Context, End, Output, run
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason


def test_lengths_differ_in_budget_and_schema() -> None:
    plans = [registry.find("report_section").plan for _ in range(3)]
    calls = [
        next(plan(ReportSection(source=SOURCE, length=length), Context()))[0]
        for plan, length in zip(plans, ("short", "standard", "long"), strict=True)
    ]
    assert sorted({call.sampling.max_tokens for call in calls}) == [call.sampling.max_tokens for call in calls]
    assert len({json.dumps(call.schema) for call in calls}) == 3


def test_a_section_takes_the_heading_of_its_request() -> None:
    request = ReportSection(source=SOURCE, heading="The #1 “problem”", topic="why cars are few", length="short")
    kind = registry.kind_of(request)
    output = Output(json.dumps(SECTIONS["Too few cars"]))
    verdict = run(kind.plan(request, Context()), lambda _: output)
    assert verdict.accepted, verdict
    assert verdict.artifact is not None
    assert verdict.artifact.model_dump()["heading"] == "The #1 “problem”"
    assert not any(kind.plan.checks(request, verdict.artifact))  # type: ignore[attr-defined]


def test_a_section_that_was_stopped_in_its_first_paragraph_says_what_for() -> None:
    request = ReportSection(source=SOURCE, topic="why cars are few", length="long")
    why = Rejection(RejectionReason.NAME_NOT_IN_SOURCE, "'Jonathan' is not in the source")
    begun = json.dumps(
        SECTIONS["Too few cars"] | {"paragraphs": ["Few make them, says Jonathan Berkeley. This is few"]}
    )
    stopped = Output(begun[:-3], End.REJECTED, rejection=why)
    verdict = run(registry.kind_of(request).plan(request, Context()), lambda _: stopped)
    assert (verdict.accepted, verdict.reason, verdict.detail) == (False, why.reason, why.detail)


SMALL = Context(parameters=135_000_000)


def sentences_of(*texts: str) -> Callable[[Call], Output]:
    remaining = iter(texts)
    return lambda _: Output(json.dumps({"sentence": next(remaining)}))


def test_a_small_model_writes_a_section_sentence_by_sentence_and_gets_its_evidence_found() -> None:
    request = ReportSection(source=SOURCE, length="short")
    bad = "This article discusses the trains of the future in many ways."
    first = "The operator Nordstern carries more passengers overnight than in the year before."
    second = "Track fees make the trains that cross several countries dear for operators."
    plan = registry.kind_of(request).plan(request, SMALL)
    verdict = run(plan, sentences_of(bad, first, first, second, bad))
    assert verdict.accepted, verdict
    assert verdict.artifact is not None
    section = verdict.artifact.model_dump()
    assert section["body"] == f"{first} {second}"
    assert [citation["quote"] for citation in section["citations"]] == [
        SECTIONS["Record demand"]["quotes"][0],
        "Track fees make it worse, because a train that crosses four countries pays four tariffs.",
    ]


def test_too_few_good_sentences_of_a_small_model_are_repaired_or_rejected() -> None:
    request = ReportSection(source=SOURCE, length="short")
    steps: list[str] = []

    def answer(call: Call) -> Output:
        steps.append(call.step)
        return Output('{"sentence":"This article discusses the trains of the future in many ways."}')

    verdict = run(registry.kind_of(request).plan(request, SMALL), answer)
    assert (verdict.reason, verdict.artifact) == (RejectionReason.META_TALK, None)
    assert set(steps) == {"section"}, "where no sentence stands, no more are asked for"
    assert run(registry.kind_of(request).plan(request, SMALL), lambda _: Output("{")).reason == "off_schema"


def test_the_good_sentences_of_a_small_model_are_kept_for_the_second_round() -> None:
    request = ReportSection(source=SOURCE, length="short")
    good = {
        "section": "The operator Nordstern carries more passengers overnight than in the year before.",
        "repair": "Track fees make the trains that cross several countries dear for operators.",
    }
    asked: list[str] = []

    def answer(call: Call) -> Output:
        first = call.step not in asked
        asked.append(call.step)
        return Output(json.dumps({"sentence": good[call.step] if first else "This article discusses trains."}))

    verdict = run(registry.kind_of(request).plan(request, SMALL), answer)
    assert asked == ["section"] * 5 + ["repair"] * 5
    assert verdict.artifact is not None, verdict
    assert [sentence in verdict.artifact.model_dump()["body"] for sentence in good.values()] == [True, True]
