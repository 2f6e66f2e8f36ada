"""Verification: each claim against its evidence, what becomes of a doubt, and answers that cannot be read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from tests.support.plans import PLAIN
from tests.support.verifying import claims_in, labelling
from tests.unit.jobs.kinds.test_trend_summary import GOOD, SOURCE
from thothy_ai.jobs import Call, Context, Output, RejectionReason, TrendSummary, Verdict, registry
from thothy_ai.jobs.api.plan import run
from thothy_ai.jobs.api.verdict import Place
from thothy_ai.jobs.plans.verification import MAX_CLAIMS, ArtifactClaim, claims_of, doubt, verify

REQUEST = TrendSummary(source=SOURCE, audience="city planners", verification=True)
SAYS_LESS = "The local dealer Radhaus Sonne sold 73 cargo bikes in 2019."
RAIN = [
    ArtifactClaim("It rains.", Place("text", 0, 9), ("It pours.", "It is wet.")),
    ArtifactClaim("It snows.", Place("text", 10, 19)),
]


class Model:
    """Writes summaries, and labels claims that contain certain words; what it repairs is in `again`."""

    def __init__(self, letters: Mapping[str, str], again: Mapping[str, Any] | None = None) -> None:
        self._letters, self._again = letters, again or {}
        self.calls: list[Call] = []

    def __call__(self, call: Call) -> Output:
        self.calls.append(call)
        if call.step == "verify":
            return labelling(call, self._letters)
        return Output(json.dumps(GOOD if call.step == "write" else self._again))

    @property
    def steps(self) -> list[str]:
        return [call.step for call in self.calls]


def verdict_of(model: Model, context: Context | None = None) -> Verdict:
    return run(registry.kind_of(REQUEST).plan(REQUEST, context or Context(verification_precision=0.7)), model)


def labels(claims: list[ArtifactClaim], answer: str | Output, context: Context | None = None) -> list[str]:
    output = answer if isinstance(answer, Output) else Output(answer)
    return [each.label for each in run(verify(claims, context or Context(), "A source."), lambda _: output)]


def test_nothing_is_verified_unless_the_request_asks_for_it() -> None:
    model = Model({})
    plan = registry.kind_of(REQUEST).plan(REQUEST.model_copy(update={"verification": False}), Context())
    assert (run(plan, model).verification, model.steps) == (None, ["write"])


def test_claims_that_are_supported_leave_no_findings() -> None:
    verdict = verdict_of(model := Model({}))
    assert (verdict.accepted, verdict.findings, model.steps) == (True, (), ["write", "verify"])
    assert verdict.verification is not None
    assert {claim.label for claim in verdict.verification.claims} == {"supported"}


def test_a_point_is_held_against_its_quotation_and_the_source_precedes_all_claims() -> None:
    verdict_of(model := Model({}))
    write, asked = (call.messages for call in model.calls)
    assert asked[0] == write[0]
    assert asked[1].content.startswith(write[1].content.partition("</source>")[0])
    for point in GOOD["key_points"]:
        assert f"{point['point']}\n   a: {point['quote']}" in asked[1].content


def test_what_is_in_doubt_is_written_once_more_and_only_that_is_verified_again() -> None:
    point = {**GOOD["key_points"][0], "point": "In 2019, Radhaus Sonne had sold a fifth of last year's number."}
    verdict = verdict_of(model := Model({"fivefold": "C"}, {"key_points_1": point}))
    assert model.steps == ["write", "verify", "repair", "verify"]
    assert claims_in(model.calls[-1]) == [point["point"]]
    assert (verdict.accepted, verdict.findings) == (True, ())
    assert verdict.artifact is not None
    assert verdict.artifact.model_dump(mode="json")["key_points"][0] == point


@pytest.mark.parametrize(
    ("letter", "reason"), [("C", RejectionReason.CONTRADICTS_SOURCE), ("N", RejectionReason.UNSUPPORTED)]
)
def test_what_stays_in_doubt_is_a_located_finding_and_rejects_nothing(letter: str, reason: RejectionReason) -> None:
    verdict = verdict_of(Model({"fivefold": letter}, {"key_points_1": GOOD["key_points"][0]}))
    (finding,) = verdict.findings
    point = GOOD["key_points"][0]
    assert verdict.accepted
    assert (finding.reason, finding.weight, finding.by) == (reason, 0.7, "verification")
    assert finding.place == ("key_points.0.point", 0, len(point["point"]))
    assert finding.source is not None
    assert SOURCE[slice(*finding.source)] == point["quote"]


def test_a_repair_that_a_gate_rejects_costs_nothing() -> None:
    worse = {**GOOD["key_points"][0], "point": "One dealer, Jonathan Berkeley, sold many bikes."}
    verdict = verdict_of(Model({"fivefold": "C"}, {"key_points_1": worse}))
    assert verdict.accepted
    assert verdict.artifact is not None
    assert verdict.artifact.model_dump(mode="json") == deepcopy(GOOD)
    assert [finding.reason for finding in verdict.findings] == [RejectionReason.CONTRADICTS_SOURCE]


def test_a_title_need_not_be_in_the_source_but_may_not_contradict_it() -> None:
    assert verdict_of(Model({"second car": "N"})).findings == ()
    assert verdict_of(Model({"second car": "C"}, {"title": GOOD["title"]})).findings


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"claims": 3}',
        '{"claims": "a S"}',
        '{"claims": "a S a X"}',
        '{"claims": "a S a S a S"}',
    ],
)
@pytest.mark.parametrize("context", [Context(), PLAIN])
def test_an_answer_that_cannot_be_read_costs_nothing_but_its_findings(answer: str, context: Context) -> None:
    assert labels(RAIN, answer, context) == ["unread", "unread"]
    (unread, _) = run(verify(RAIN, context, "A source."), lambda _: Output(answer))
    assert doubt(RAIN[0], unread, "A source.", context) is None


def test_a_model_cites_a_passage_or_none() -> None:
    found = run(verify(RAIN, Context(), "A source."), lambda _: Output('{"claims": "b C c N"}'))
    assert [(each.label, each.evidence) for each in found] == [("contradicted", "It is wet."), ("not_found", "")]
    assert labels(RAIN, '{"claims": "- C - S"}') == ["not_found", "supported"], "no passage says otherwise"


def test_many_claims_take_several_calls_side_by_side() -> None:
    claims = [ArtifactClaim(f"Claim {number}.", Place("text", 0, 8)) for number in range(MAX_CLAIMS + 3)]
    steps = []

    def answer(call: Call) -> Output:
        steps.append(call)
        return labelling(call, {})

    found = run(verify(claims, Context(), "A source."), answer)
    assert len(steps) == 2
    assert [each.claim for each in found] == [claim.text for claim in claims]


def test_long_passages_leave_room_for_the_source() -> None:
    claims = [ArtifactClaim("It rains.", Place("text", 0, 9), ("word " * 300,))] * 8
    assert len(next(verify(claims, Context(), "A source."))) > 2


def test_nothing_to_verify_takes_no_call() -> None:
    assert run(verify([], Context(), "A source."), lambda _: pytest.fail("a call")) == ()


@pytest.mark.parametrize("context", [Context(), PLAIN])
def test_what_all_verifications_of_a_source_have_in_common_precedes_the_claims(context: Context) -> None:
    prompts = [next(verify([claim], context, SOURCE))[0].messages[-1].content for claim in RAIN]
    assert prompts[0].partition("1. It rains.")[0] == prompts[1].partition("1. It snows.")[0] != ""


@pytest.mark.parametrize("count", [1, 2, MAX_CLAIMS])
def test_the_grammar_has_a_citation_and_a_label_per_claim(count: int) -> None:
    for context in (Context(), PLAIN):
        (call,) = next(verify([RAIN[0]] * count, context, SOURCE))
        pattern = call.schema["properties"]["claims"]["pattern"]
        assert re.fullmatch(pattern, " ".join(f"{'abc-'[number % 4]} {'SCN'[number % 3]}" for number in range(count)))
        assert not re.fullmatch(pattern, " ".join(["a S"] * (count + 1)))
        assert call.sampling.max_tokens > 5 * count + 10


def test_an_entailment_model_gets_pairs_of_evidence_and_claim() -> None:
    context = Context(verifier=True)
    (call,) = next(verify(RAIN, context, "A source."))
    assert (call.step, call.pairs) == ("verify", (("It pours. It is wet.", "It rains."), ("A source.", "It snows.")))
    assert labels(RAIN, '["contradiction", "neutral"]', context) == ["contradicted", "not_found"]
    assert labels(RAIN, '["contradiction", null]', context) == ["contradicted", "unread"]
    for answer in ("", "null", '["entailment"]', '["entailment", "maybe"]', "3"):
        assert labels(RAIN, answer, context) == ["unread", "unread"]


def test_the_evidence_of_a_sentence_shares_its_rarest_words() -> None:
    source = "The tower has 300 steps. The mayor climbs it. The mayor opened the tower in June 1910, in the rain."
    text = "A mayor opened it in 1910. It has 300 steps, one hears."
    first, second = claims_of(text, "body", source, "en", ["The mayor climbs it."])
    assert first.place == ("body", 0, 26)
    assert first.evidence[:2] == ("The mayor climbs it.", "The mayor opened the tower in June 1910, in the rain.")
    assert second.evidence[1] == "The tower has 300 steps."
    assert text[slice(*second.place[1:])] == second.text
