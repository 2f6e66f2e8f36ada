"""The second look: one finding per statement, what it rejects, and what it costs."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support.plans import PLAIN, verdict_on
from tests.unit.jobs.kinds.test_trend_summary import GOOD, SOURCE
from thothy_ai.jobs import Call, Context, Output, RejectionReason, TrendSummary
from thothy_ai.jobs.api.plan import run
from thothy_ai.jobs.plans.verification import MAX_CLAIMS, Claim, verify

STATEMENTS = 6  # of the good summary: title, standfirst, why it matters and three key points


def codes(*named: str) -> str:
    return " ".join(name[0].upper() for name in named)


def findings(*named: str, reason: str = "the source says otherwise") -> dict[str, Any]:
    found = [*named, *["supported"] * (STATEMENTS - len(named))]
    return {
        "findings": codes(*found),
        "reasons": [
            {"statement": number, "reason": reason} for number, name in enumerate(found, 1) if name != "supported"
        ],
    }


def request(verification: str) -> TrendSummary:
    return TrendSummary(source=SOURCE, audience="city planners", verification=verification)  # type: ignore[arg-type]


def test_without_a_verification_none_is_asked_for() -> None:
    verdict, asked = verdict_on(request("off"), GOOD)
    assert (verdict.verification, asked.steps) == (None, ["write"])


def test_a_recorded_verification_does_not_reject() -> None:
    verdict, asked = verdict_on(request("record"), GOOD, findings("supported", "contradicted"))
    assert verdict.accepted
    assert asked.steps == ["write", "verify"]
    assert verdict.verification is not None
    assert [claim.label for claim in verdict.verification.claims][:2] == ["supported", "contradicted"]
    assert verdict.verification.claims[1].reason == "the source says otherwise"
    assert verdict.verification.claims[1].claim == GOOD["standfirst"]


def test_the_verification_s_prompt_shares_the_source_and_lists_the_statements() -> None:
    _, asked = verdict_on(request("record"), GOOD, findings())
    write, verification = asked.calls
    assert verification.messages[0] == write.messages[0]
    shared = write.messages[1].content.partition("</source>")[0]
    assert verification.messages[1].content.startswith(shared)
    assert all(point["point"] in verification.messages[1].content for point in GOOD["key_points"])


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        (["supported", "contradicted"], RejectionReason.CONTRADICTS_SOURCE),
        (["supported", "not_found"], RejectionReason.UNSUPPORTED),
        (["contradicted"], RejectionReason.CONTRADICTS_SOURCE),
    ],
)
def test_an_enforced_verification_repairs_once_and_then_rejects(named: list[str], reason: RejectionReason) -> None:
    part = "title" if len(named) == 1 else "standfirst"
    again = {part: GOOD[part]}
    one = {"findings": codes(*named[-1:]), "reasons": [{"statement": 1, "reason": "no"}]}
    verdict, asked = verdict_on(request("enforce"), GOOD, findings(*named), again, one)
    assert (verdict.accepted, verdict.reason) == (False, reason)
    assert GOOD[part] in verdict.detail
    assert asked.steps == ["write", "verify", "repair", "verify"]
    assert list(asked.calls[2].schema["properties"]) == [part]


def test_a_repair_that_is_supported_is_accepted_and_the_verification_is_of_the_final_text() -> None:
    again = {"standfirst": "In Freiburg, families buy electric bicycles with a box instead of another car."}
    one = {"findings": "S", "reasons": []}
    verdict, _ = verdict_on(request("enforce"), GOOD, findings("supported", "not_found"), again, one)
    assert verdict.accepted
    assert verdict.verification is not None
    assert len(verdict.verification.claims) == STATEMENTS
    assert {claim.label for claim in verdict.verification.claims} == {"supported"}


def test_a_title_need_not_be_in_the_source() -> None:
    verdict, _ = verdict_on(request("enforce"), GOOD, findings("not_found"))
    assert verdict.accepted


@pytest.mark.parametrize(
    "output",
    ["", "null", "{}", '{"findings": "S"}', '{"findings": 3, "reasons": []}', '{"findings": "", "reasons": []}'],
)
def test_a_finding_that_is_missing_supports_nothing(output: str) -> None:
    verification = run(verify("The source.", [Claim("A."), Claim("B.")], Context()), lambda _: Output(output))
    assert [claim.label for claim in verification.claims] == ["not_found", "not_found"]


def test_many_statements_take_several_calls() -> None:
    calls = []

    def answer(call: Any) -> Output:
        calls.append(call)
        pattern = call.schema["properties"]["findings"]["pattern"]
        [count] = (count for count in (3, MAX_CLAIMS) if re.fullmatch(pattern[1:-1], codes(*["s"] * count)))
        return Output(json.dumps({"findings": codes(*["s"] * count), "reasons": []}))

    statements = [Claim(f"Claim {number}.") for number in range(MAX_CLAIMS + 3)]
    verification = run(verify("The source.", statements, Context()), answer)
    assert len(calls) == 2
    assert [claim.claim for claim in verification.claims] == [statement.text for statement in statements]


def test_nothing_to_verify_takes_no_call() -> None:
    verification = run(verify("The source.", [], Context()), lambda _: pytest.fail("a call"))
    assert verification.claims == ()


def test_a_repair_is_verified_wherever_it_stands_and_the_rest_is_not_verified_again() -> None:
    point = {**GOOD["key_points"][1], "point": "Most buyers want to do without another car, says Katrin Vogel."}
    again = {"key_points_2": point}
    verdict, asked = verdict_on(
        request("enforce"),
        GOOD,
        findings("supported", "supported", "supported", "supported", "contradicted"),
        again,
        {"findings": "N", "reasons": [{"statement": 1, "reason": "she does not say so"}]},
    )
    assert asked.steps == ["write", "verify", "repair", "verify"]
    assert point["point"] in asked.calls[-1].messages[-1].content
    assert GOOD["key_points"][0]["point"] not in asked.calls[-1].messages[-1].content
    assert (verdict.accepted, verdict.reason) == (False, RejectionReason.UNSUPPORTED)
    assert verdict.verification is not None
    named = {claim.claim: claim.label for claim in verdict.verification.claims}
    assert named[point["point"]] == "not_found"


def test_a_small_model_is_asked_for_findings_only() -> None:
    seen: list[Call] = []

    def answer(call: Call) -> Output:
        seen.append(call)
        return Output('"C S"')

    verification = run(verify(SOURCE, [Claim("It rains."), Claim("It pours.")], PLAIN), answer)
    assert seen[0].schema["type"] == "string"
    assert "reasons" not in seen[0].messages[-1].content
    found = [("It rains.", "contradicted", ""), ("It pours.", "supported", "")]
    assert [tuple(claim) for claim in verification.claims] == found


@pytest.mark.parametrize("output", ["", "null", "{}", "3", '""', '{"findings": "S S"}', '"X"'])
def test_a_small_model_s_finding_that_is_missing_supports_nothing(output: str) -> None:
    verification = run(verify("The source.", [Claim("A."), Claim("B.")], PLAIN), lambda _: Output(output))
    assert [claim.label for claim in verification.claims] == ["not_found", "not_found"]


@pytest.mark.parametrize("context", [Context(), PLAIN])
def test_what_all_verifications_of_a_source_have_in_common_precedes_the_statements(context: Context) -> None:
    one, other = (next(verify(SOURCE, [Claim(text)], context))[0] for text in ("It rains.", "It snows."))
    prompts = [call.messages[-1].content for call in (one, other)]
    assert [prompt[-9:] for prompt in prompts] == ["It rains.", "It snows."]
    assert len(prompts[0].removesuffix("It rains.")) == len(prompts[1].removesuffix("It snows."))


@pytest.mark.parametrize("count", [1, 2, MAX_CLAIMS])
def test_the_grammar_has_one_code_per_statement_apart_by_spaces(count: int) -> None:
    for context in (Context(), PLAIN):
        (call,) = next(verify(SOURCE, [Claim("It rains.")] * count, context))
        pattern = (call.schema if context.plain else call.schema["properties"]["findings"])["pattern"]
        assert re.fullmatch(pattern, " ".join("SCN"[number % 3] for number in range(count)))
        assert not re.fullmatch(pattern, " ".join(["S"] * (count + 1)))
        assert not re.fullmatch(pattern, "S" * (2 * count))
        assert call.sampling.max_tokens > 5 * count + 10
