"""The kind `summary_translation`, with scripted answers: what becomes of each field."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.support.verifying import labelling
from thothy_ai.jobs import SummaryTranslation, TrendSummary, TrendSummaryArtifact, Verdict, registry
from thothy_ai.jobs.api.plan import Call, Context, Output, Previous, run
from thothy_ai.jobs.api.verdict import RejectionReason

SOURCE = "Night trains are full. Nordstern carried 1.9 million passengers last year. A bed costs 89 euros."
QUOTE = "Nordstern carried 1.9 million passengers last year."
SUMMARY = TrendSummaryArtifact.model_validate(
    {
        "title": "Night trains fill up",
        "standfirst": "More people sleep across the border than operators have beds for.",
        "key_points": [{"point": "Nordstern carried 1.9 million people in a year.", "quote": QUOTE}],
        "why_it_matters": "Those who plan a trip should book early.",
        "tags": ["night trains", "travel"],
        "confidence": "medium",
    }
)
GERMAN = {
    "Night trains fill up": "Nachtzüge füllen sich",
    "More people sleep across the border than operators have beds for.": "Mehr Menschen schlafen sich über die Grenze, "
    "als die Betreiber Betten haben.",
    "Nordstern carried 1.9 million people in a year.": "Nordstern beförderte in einem Jahr 1,9 Millionen Menschen.",
    "Those who plan a trip should book early.": "Wer eine Reise plant, sollte früh buchen.",
    "night trains": "Nachtzüge",
    "travel": "Reisen",
}
REQUEST = SummaryTranslation(source=SOURCE, summary=SUMMARY, target_locale="de")
KIND = registry.find("summary_translation")


def passage(call: Call) -> str:
    return call.messages[-1].content.partition("<passage>\n")[2].removesuffix("\n</passage>").partition("\n</pass")[0]


def scripted(answers: Mapping[str, str]) -> Callable[[Call], Output]:
    return lambda call: Output(json.dumps({"text": answers[passage(call)]}))


def judged(answer: Callable[[Call], Output], context: Context | None = None, **changes: Any) -> Verdict:
    return run(KIND.plan(REQUEST.model_copy(update=changes), context or Context()), answer)


def test_each_field_stays_what_it_was_and_evidence_what_the_source_says() -> None:
    verdict = judged(scripted(GERMAN))
    assert verdict.accepted, verdict
    assert verdict.artifact is not None
    assert verdict.artifact.model_dump(mode="json") == {
        "title": "Nachtzüge füllen sich",
        "standfirst": GERMAN["More people sleep across the border than operators have beds for."],
        "key_points": [{"point": "Nordstern beförderte in einem Jahr 1,9 Millionen Menschen.", "quote": QUOTE}],
        "why_it_matters": "Wer eine Reise plant, sollte früh buchen.",
        "tags": ["Nachtzüge", "Reisen"],
        "confidence": "medium",
    }
    assert list(KIND.plan.checks(REQUEST, verdict.artifact)).count(None) > 0
    assert not any(KIND.plan.checks(REQUEST, verdict.artifact))


def test_a_retry_keeps_the_fields_that_nothing_was_wrong_with() -> None:
    carried = "Nordstern carried 1.9 million people in a year."
    rejected = judged(scripted(GERMAN | {carried: carried}))
    assert (rejected.accepted, rejected.reason) == (False, RejectionReason.UNTRANSLATED)
    assert rejected.artifact is not None
    previous = Previous(RejectionReason.UNTRANSLATED, "", rejected.artifact.model_dump(mode="json"))
    asked: list[str] = []

    def answer(call: Call) -> Output:
        asked.append(passage(call))
        return scripted(GERMAN)(call)

    assert judged(answer, replace(Context(), previous=previous)).accepted
    assert asked == ["Nordstern carried 1.9 million people in a year."]
    asked.clear()
    broken = replace(previous, artifact={"title": "Not a summary"})
    assert judged(answer, replace(Context(), previous=broken)).accepted
    assert len(asked) == len(GERMAN)


def test_a_number_in_doubt_is_at_its_place_in_its_field() -> None:
    carried = "Nordstern carried 1.9 million people in a year."
    verdict = judged(scripted(GERMAN | {carried: "Nordstern beförderte 19 Millionen Menschen."}))
    assert verdict.accepted
    (finding,) = verdict.findings
    assert finding.place == ("key_points.0.point", 21, 33)
    assert verdict.artifact is not None
    (again,) = filter(None, KIND.plan.checks(REQUEST, verdict.artifact))
    assert (again.part, again.span) == ("key_points.0.point", (21, 33))


def test_a_tag_that_stays_in_the_language_of_the_original_is_in_doubt() -> None:
    verdict = judged(scripted(GERMAN | {"travel": "night travel"}))
    assert verdict.accepted
    (finding,) = verdict.findings
    assert (finding.reason, finding.place) == (RejectionReason.FOREIGN_TAG, ("tags.1", 0, 12))
    assert verdict.artifact is not None
    assert [each.part for each in filter(None, KIND.plan.checks(REQUEST, verdict.artifact))] == ["tags.1"]


def test_a_doubt_is_at_the_field_that_it_is_about() -> None:
    doubted = "Wer eine Reise plant, sollte früh buchen."

    def answer(call: Call) -> Output:
        return labelling(call, {doubted: "C"}) if call.step == "verify" else scripted(GERMAN)(call)

    verdict = judged(answer, verification=True)
    (finding,) = verdict.findings
    assert finding.place == ("why_it_matters", 0, len(doubted))


@pytest.mark.parametrize("given", [{}, {"summary": {"title": "Only"}}, {"summary": "text"}])
def test_a_summary_that_is_none_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="summary"):
        SummaryTranslation.model_validate({"source": SOURCE, **given})


def test_siblings_share_the_source() -> None:
    summary = TrendSummary(source=SOURCE)
    assert KIND.source_key(REQUEST) == registry.kind_of(summary).source_key(summary)
