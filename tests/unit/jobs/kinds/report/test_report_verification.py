"""The verification of a report: its claims, and what is written again for a doubt."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.support.scripted_report import REQUEST, SECTIONS, SOURCE, heading_in, judged, scripted
from tests.support.verifying import claims_in, labelling
from thothy_ai.jobs import ReportSection, registry
from thothy_ai.jobs.api.plan import Call, Context, Output, run
from thothy_ai.jobs.api.verdict import RejectionReason

VERIFIED = REQUEST.model_copy(update={"verification": True})


def verifying(doubted: str, times: int = 1) -> Callable[[Call], Output]:
    """Answers in which verification contradicts the claim that contains these words, the first few times."""
    left = [times]

    def answer(call: Call) -> Output:
        if call.step != "verify":
            return scripted()(call)
        hit = left[0] > 0 and any(doubted in claim for claim in claims_in(call))
        left[0] -= hit
        return labelling(call, {doubted: "C"} if hit else {})

    return answer


def test_each_sentence_of_a_report_is_a_claim() -> None:
    verdict = judged(verifying("nothing"), VERIFIED)
    assert (verdict.accepted, verdict.findings) == (True, ()), verdict
    assert verdict.verification is not None
    assert [claim.label for claim in verdict.verification.claims] == ["supported"] * 7
    assert verdict.verification.claims[0].evidence == SECTIONS["Record demand"]["quotes"][0]


def test_a_section_in_doubt_is_written_again_and_verified_again_if_it_has_changed() -> None:
    steps: list[str] = []

    def answer(call: Call, inner: Callable[[Call], Output]) -> Output:
        steps.append(call.step)
        return inner(call)

    inner = verifying("hardly anyone builds", times=9)
    verdict = judged(lambda call: answer(call, inner), VERIFIED)
    assert steps == ["outline", *["section"] * 3, "verify", "section", "summary", "verify"]
    (finding,) = verdict.findings
    assert verdict.accepted
    assert finding.place is not None
    assert (finding.reason, finding.place.part) == (RejectionReason.CONTRADICTS_SOURCE, "sections.1.body")


def test_a_section_that_a_gate_rejects_when_it_is_written_again_stays_as_it_was() -> None:
    """It comes back as a copy of the next one."""
    written: list[str] = []

    def answer(call: Call) -> Output:
        if call.step in {"verify", "outline"} or "paragraphs" not in call.schema["properties"]:
            return verifying("hardly anyone builds", times=9)(call)
        heading = heading_in(call)
        copies = heading in written
        written.append(heading)
        body = SECTIONS["Record demand" if copies else heading]["paragraphs"]
        return Output(json.dumps(SECTIONS[heading] | {"paragraphs": body}))

    verdict = judged(answer, VERIFIED)
    assert written.count("Too few cars") > 1
    assert verdict.accepted
    assert [finding.place and finding.place.part for finding in verdict.findings] == ["sections.1.body"]


def test_a_summary_in_doubt_is_written_again() -> None:
    assert judged(verifying("record crowds"), VERIFIED).findings == ()
    (finding,) = judged(verifying("record crowds", times=9), VERIFIED).findings
    assert finding.place is not None
    assert finding.place.part == "summary"


def test_a_summary_with_a_finding_is_verified_too() -> None:
    doubtful = "Nordstern carried 4 million passengers, and its trains were all on time according to its manager."
    steps: list[str] = []

    def answer(call: Call) -> Output:
        steps.append(call.step)
        return labelling(call, {}) if call.step == "verify" else scripted(summary=doubtful)(call)

    verdict = judged(answer, VERIFIED)
    assert verdict.accepted
    assert steps[-4:] == ["summary", "verify", "repair", "verify"]
    assert verdict.verification is not None
    assert doubtful in [claim.claim for claim in verdict.verification.claims]


def test_a_section_is_verified_too() -> None:
    request = ReportSection(source=SOURCE, heading="Too few cars", length="short", verification=True)
    plan = registry.kind_of(request).plan
    (finding,) = run(plan(request, Context()), verifying("hardly anyone builds", times=9)).findings
    assert finding.place is not None
    assert finding.place.part == "body"
