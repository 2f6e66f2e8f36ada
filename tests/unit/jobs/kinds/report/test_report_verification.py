"""The verification of a report: findings, and what is written again for them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.support.scripted_report import REQUEST, SECTIONS, SOURCE, heading_in, judged, scripted
from thothy_ai.jobs import ReportSection, registry
from thothy_ai.jobs.api.plan import Call, Context, Output, run
from thothy_ai.jobs.api.verdict import RejectionReason


def verifying(refuted: str, times: int = 1) -> Callable[[Call], Output]:
    """Answers in which a verification refutes the statement that contains these words, the first few times."""
    left = [times]

    def answer(call: Call) -> Output:
        if call.step != "verify":
            return scripted()(call)
        _, _, asked = call.messages[-1].content.partition("words of English.\n\n")
        statements = asked.split("\n")
        bad = [number for number, line in enumerate(statements) if refuted in line and left[0] > 0]
        left[0] -= bool(bad)
        findings = " ".join("C" if number in bad else "S" for number in range(len(statements)))
        reasons = [{"statement": number + 1, "reason": "The source says otherwise."} for number in bad]
        return Output(json.dumps({"findings": findings, "reasons": reasons}))

    return answer


@pytest.mark.parametrize("verification", ["record", "enforce"])
def test_a_verification_is_recorded_with_a_finding_for_each_sentence(verification: str) -> None:
    request = REQUEST.model_copy(update={"verification": verification})
    verdict = judged(verifying("nothing"), request)
    assert verdict.accepted, verdict
    assert verdict.verification is not None
    assert [claim.label for claim in verdict.verification.claims] == ["supported"] * 7


def test_a_refuted_section_is_written_again_and_verified_again_if_the_request_says_so() -> None:
    steps: list[str] = []

    def answer(call: Call, inner: Callable[[Call], Output]) -> Output:
        steps.append(call.step)
        return inner(call)

    request = REQUEST.model_copy(update={"verification": "enforce"})
    inner = verifying("hardly anyone builds")
    assert judged(lambda call: answer(call, inner), request).accepted
    assert steps == ["outline", *["section"] * 3, "verify", "section", "verify", "summary", "verify"]
    verdict = judged(verifying("hardly anyone builds", times=9), request)
    assert verdict.reason is RejectionReason.CONTRADICTS_SOURCE
    assert verdict.verification is not None
    recorded = judged(verifying("hardly anyone builds", times=9), REQUEST.model_copy(update={"verification": "record"}))
    assert recorded.accepted


def test_a_sound_section_that_is_written_again_beside_a_refuted_one_is_verified_again() -> None:
    """The refuted section comes back as a copy of the next one, which is then repaired as its near-duplicate."""
    other = (
        "Whoever shares a compartment pays at least 89 euros for a bed. Whole compartments at a price for two are "
        "rare by now, which is hardest on parents with children."
    )
    verification, written = verifying("hardly anyone builds"), list[str]()

    def answer(call: Call) -> Output:
        if call.step == "verify":
            lied = verifying("hardest on parents", times=9)(call)
            return lied if "C" in json.loads(lied.text)["findings"] else verification(call)
        if call.step == "outline" or "paragraphs" not in call.schema["properties"]:
            return scripted()(call)
        heading = heading_in(call)
        written.append(heading)
        copies = heading == "Too few cars" and written.count(heading) == 2
        body = SECTIONS["What a bed costs" if copies else heading]["paragraphs"]
        again = heading == "What a bed costs" and written.count(heading) == 2
        return Output(json.dumps(SECTIONS[heading] | {"paragraphs": [other] if again else body}))

    verdict = judged(answer, REQUEST.model_copy(update={"verification": "enforce"}))
    assert written.count("What a bed costs") == 2
    assert verdict.reason is RejectionReason.CONTRADICTS_SOURCE, verdict


def test_a_refuted_summary_is_written_again_or_rejects_the_report() -> None:
    request = REQUEST.model_copy(update={"verification": "enforce"})
    assert judged(verifying("record crowds"), request).accepted
    assert judged(verifying("record crowds", times=9), request).reason is RejectionReason.CONTRADICTS_SOURCE


def test_a_section_is_verified_too() -> None:
    request = ReportSection(source=SOURCE, heading="Too few cars", length="short", verification="enforce")
    plan = registry.kind_of(request).plan
    assert run(plan(request, Context()), verifying("hardly anyone builds")).accepted
    verdict = run(plan(request, Context()), verifying("hardly anyone builds", times=9))
    assert verdict.reason is RejectionReason.CONTRADICTS_SOURCE
