"""The kinds `report` and `report_section`, with scripted answers: outline, sections, repair, summary, document."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from thothy_ai.jobs import Report, ReportArtifact, ReportSection, registry
from thothy_ai.jobs.plan import Call, Context, End, Output, Plan, Previous, run
from thothy_ai.jobs.report.markdown import markdown_of
from thothy_ai.jobs.report.summary import summarized
from thothy_ai.jobs.report.values import Section
from thothy_ai.jobs.verdict import Rejection, RejectionReason, Verdict

SOURCE = """Sleeping across the border

The 19:42 from Vienna leaves with every bed taken. The operator Nordstern carried 1.9 million overnight passengers last
year, 28 percent more than in the year before. A private company, Lune Rail, opened lines from Paris to Copenhagen and
to Rome.

Most sleeping cars in Europe were built before 1990, and only two factories still make them. A new car costs about three
million euros. Track fees make it worse, because a train that crosses four countries pays four tariffs.

A bed in a shared compartment costs between 89 and 189 euros. Families did worst, since few trains still sell a whole
compartment for the price of two adults.
"""
OUTLINE: dict[str, Any] = {
    "title": "Night trains fill up faster than cars can be built",
    "sections": [
        {
            "heading": "Record demand",
            "covers": "How many more travellers choose the night.",
            "quotes": ["The 19:42 from Vienna leaves with every bed taken."],
        },
        {
            "heading": "Too few cars",
            "covers": "Why operators cannot add trains.",
            "quotes": ["A new car costs about three million euros."],
        },
        {
            "heading": "What a bed costs",
            "covers": "Prices, and who pays most.",
            "quotes": ["A bed in a shared compartment costs between 89 and 189 euros."],
        },
    ],
}
SECTIONS: dict[str, dict[str, Any]] = {
    "Record demand": {
        "quotes": [
            (
                "The operator Nordstern carried 1.9 million overnight passengers last year, 28 percent more than "
                "in the year before."
            )
        ],
        "paragraphs": [
            (
                "Demand for travel by night has grown by more than a quarter within one year at Nordstern. Its rival "
                "Lune Rail has added routes from Paris, and departures from Vienna are sold out."
            )
        ],
    },
    "Too few cars": {
        "quotes": [
            "Most sleeping cars in Europe were built before 1990, and only two factories still make them.",
            "A new car costs about three million euros.",
        ],
        "paragraphs": [
            (
                "The sleeping cars that Europe has are old, and hardly anyone builds new ones. At three million euros "
                "each, operators buy slowly."
            )
        ],
    },
    "What a bed costs": {
        "quotes": ["A bed in a shared compartment costs between 89 and 189 euros."],
        "paragraphs": [
            (
                "Travellers who share a compartment pay at least 89 euros for their bed. Parents with children fare "
                "worse, because whole compartments at a price for two have become rare."
            )
        ],
    },
}
SUMMARY = "Night trains draw record crowds, but old cars and dear new ones keep operators from adding beds."
REQUEST = Report(source=SOURCE, sections=3, length="short")
KIND = registry.find("report")
HEADINGS = list(SECTIONS)


def heading_in(call: Call) -> str:
    instruction = call.messages[-1].content.rpartition("</source>")[2]
    return instruction.partition("Write the section “")[2].partition("”")[0]


def step_of(call: Call) -> str:
    properties = call.schema["properties"]
    return next(name for name in ("sections", "paragraphs", "summary", "passages") if name in properties)


def scripted(
    outline: dict[str, Any] = OUTLINE, sections: dict[str, dict[str, Any]] | None = None, summary: str = SUMMARY
) -> Callable[[Call], Output]:
    def answer(call: Call) -> Output:
        values = {
            "sections": lambda: outline,
            "paragraphs": lambda: (sections or SECTIONS)[heading_in(call)],
            "summary": lambda: {"summary": summary},
            "passages": lambda: {"passages": [1]},
        }
        return Output(json.dumps(values[step_of(call)]()))

    return answer


def in_turn(*answers: Callable[[Call], Output]) -> Callable[[Call], Output]:
    remaining = iter(answers)

    def answer(call: Call) -> Output:
        return next(remaining)(call)

    return answer


def judged(answer: Callable[[Call], Output], request: Report = REQUEST, context: Context | None = None) -> Verdict:
    return run(KIND.plan(request, context or Context()), answer)


def changed(heading: str, **values: object) -> dict[str, dict[str, Any]]:
    return SECTIONS | {heading: SECTIONS[heading] | values}


def report(verdict: Verdict) -> ReportArtifact:
    assert isinstance(verdict.artifact, ReportArtifact)
    return verdict.artifact


def test_a_report_is_outlined_written_summarized_and_assembled() -> None:
    steps: list[str] = []
    verdict = judged(lambda call: steps.append(call.step) or scripted()(call))  # type: ignore[func-returns-value]
    assert verdict.accepted, verdict
    assert steps == ["outline", "section", "section", "section", "summary"]
    assert [section.heading for section in report(verdict).sections] == HEADINGS
    assert report(verdict).summary == SUMMARY


def test_the_document_has_footnotes_behind_the_sentences_that_they_support() -> None:
    lines = report(judged(scripted())).markdown.split("\n")
    assert lines[:5] == ["# Night trains fill up faster than cars can be built", "", SUMMARY, "", "## Record demand"]
    demand = next(line for line in lines if line.startswith("Demand"))
    assert "at Nordstern.[^1]" in demand
    cars = next(line for line in lines if line.startswith("The sleeping"))
    assert cars.endswith("new ones.[^2] At three million euros each, operators buy slowly.[^3]")
    assert "[^3]: “A new car costs about three million euros.”" in lines
    assert lines[-1] == ""


def test_a_quotation_of_two_sections_is_one_footnote() -> None:
    cited = ({"quote": "Beds are full."},)
    sections = [Section(heading=f"H{number}", body="Text here.", citations=cited) for number in range(2)]  # type: ignore[arg-type]
    assert markdown_of("T", "S", sections).count("[^1]") == 3


def test_evidence_can_only_be_a_span_of_the_source() -> None:
    (outline,) = next(KIND.plan(REQUEST, Context()))
    quotes = outline.schema["properties"]["sections"]["items"]["properties"]["quotes"]["items"]
    assert "A new car costs about three million euros." in quotes["enum"]
    assert "Sleeping across the border" not in quotes["enum"]


def test_all_calls_share_the_source() -> None:
    beginnings: set[str] = set()

    def answer(call: Call) -> Output:
        beginnings.add(str(call.messages[0]) + call.messages[1].content.partition("</source>")[0])
        return scripted()(call)

    judged(answer)
    assert len(beginnings) == 1


def test_the_request_is_in_the_prompts() -> None:
    request = Report(
        source=SOURCE, sections=3, length="short", audience="planners", tone="dry", locale="de", topic="beds"
    )
    outline = next(KIND.plan(request, Context()))[0].messages[-1].content.rpartition("</source>")[2]
    assert all(word in outline for word in ("planners", "dry", "German", "about beds", "3 sections"))
    (plain,) = next(KIND.plan(request, Context(parameters=135_000_000)))[0].messages
    assert plain.content.endswith("Outline a report about beds in 3 sections. Write in German.")


def test_lengths_differ_in_budget_and_schema() -> None:
    plans = [registry.find("report_section").plan for _ in range(3)]
    calls = [
        next(plan(ReportSection(source=SOURCE, length=length), Context()))[0]
        for plan, length in zip(plans, ("short", "standard", "long"), strict=True)
    ]
    assert sorted({call.sampling.max_tokens for call in calls}) == [call.sampling.max_tokens for call in calls]
    assert len({json.dumps(call.schema) for call in calls}) == 3


BAD_SECTIONS: list[tuple[dict[str, object], str]] = [
    ({"quotes": ["Nordstern sold all of its beds at once."]}, "quote_not_in_source"),
    (
        {
            "paragraphs": [
                "Demand grew by 92 percent at Nordstern. Lune Rail has added routes from Paris and is sold out."
            ]
        },
        "number_not_in_source",
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
        (OUTLINE | {"title": "Night trains carried 77 million people"}, "number_not_in_source"),
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
    bad = "Nordstern carried 4 million passengers, and its trains were all on time according to its manager."
    assert judged(in_turn(*[scripted(summary=bad)] * 5, scripted())).accepted
    assert judged(scripted(summary=bad)).reason is RejectionReason.NUMBER_NOT_IN_SOURCE


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


def test_a_long_source_is_condensed_first() -> None:
    source = (
        SOURCE + "\n\n" + "\n\n".join(f"In town {number} nothing happened at all that year." for number in range(3_000))
    )
    steps: list[str] = []

    def answer(call: Call) -> Output:
        steps.append(call.step)
        if call.step == "condense":
            most = call.schema["properties"]["passages"]["maxItems"]
            return Output(json.dumps({"passages": list(range(1, most + 1))}))
        return scripted()(call)

    verdict = judged(answer, Report(source=source, sections=3, length="short"))
    assert verdict.accepted, verdict
    assert steps.count("condense") > 3
    assert steps[-5:] == ["outline", "section", "section", "section", "summary"]


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
    why = Rejection(RejectionReason.NUMBER_NOT_IN_SOURCE, "'40' is not in the source")
    begun = json.dumps(SECTIONS["Too few cars"] | {"paragraphs": ["Only 40 factories still make them. This is few"]})
    stopped = Output(begun[:-3], End.REJECTED, rejection=why)
    verdict = run(registry.kind_of(request).plan(request, Context()), lambda _: stopped)
    assert (verdict.accepted, verdict.reason, verdict.detail) == (False, why.reason, why.detail)


@pytest.mark.parametrize("sections", [2, 8])
def test_the_number_of_sections_is_bounded(sections: int) -> None:
    with pytest.raises(ValidationError):
        Report(source=SOURCE, sections=sections)


def test_the_checks_judge_a_whole_report() -> None:
    artifact = report(judged(scripted()))
    assert not any(KIND.plan.checks(REQUEST, artifact))  # type: ignore[attr-defined]
    worse = artifact.model_copy(update={"sections": (artifact.sections[0],) * 2})
    reasons = [found.reason for found in KIND.plan.checks(REQUEST, worse) if found]  # type: ignore[attr-defined]
    assert RejectionReason.NEAR_DUPLICATE in reasons


def reviewing(refuted: str, times: int = 1) -> Callable[[Call], Output]:
    """Answers in which a review refutes the statement that contains these words, the first few times."""
    left = [times]

    def answer(call: Call) -> Output:
        if call.step != "review":
            return scripted()(call)
        _, _, asked = call.messages[-1].content.partition("words of English.\n\n")
        statements = asked.split("\n")
        bad = [number for number, line in enumerate(statements) if refuted in line and left[0] > 0]
        left[0] -= bool(bad)
        findings = " ".join("C" if number in bad else "S" for number in range(len(statements)))
        reasons = [{"statement": number + 1, "reason": "The source says otherwise."} for number in bad]
        return Output(json.dumps({"findings": findings, "reasons": reasons}))

    return answer


@pytest.mark.parametrize("review", ["record", "enforce"])
def test_a_review_is_recorded_with_a_finding_for_each_sentence(review: str) -> None:
    request = REQUEST.model_copy(update={"review": review})
    verdict = judged(reviewing("nothing"), request)
    assert verdict.accepted, verdict
    assert verdict.review is not None
    assert [finding.finding for finding in verdict.review.findings] == ["supported"] * 7


def test_a_refuted_section_is_written_again_and_reviewed_again_if_the_request_says_so() -> None:
    steps: list[str] = []

    def answer(call: Call, inner: Callable[[Call], Output]) -> Output:
        steps.append(call.step)
        return inner(call)

    request = REQUEST.model_copy(update={"review": "enforce"})
    inner = reviewing("hardly anyone builds")
    assert judged(lambda call: answer(call, inner), request).accepted
    assert steps == ["outline", *["section"] * 3, "review", "section", "review", "summary", "review"]
    verdict = judged(reviewing("hardly anyone builds", times=9), request)
    assert verdict.reason is RejectionReason.CONTRADICTS_SOURCE
    assert verdict.review is not None
    recorded = judged(reviewing("hardly anyone builds", times=9), REQUEST.model_copy(update={"review": "record"}))
    assert recorded.accepted


def test_a_sound_section_that_is_written_again_beside_a_refuted_one_is_reviewed_again() -> None:
    """The refuted section comes back as a copy of the next one, which is then repaired as its near-duplicate."""
    other = (
        "Whoever shares a compartment pays at least 89 euros for a bed. Whole compartments at a price for two are "
        "rare by now, which is hardest on parents with children."
    )
    review, written = reviewing("hardly anyone builds"), list[str]()

    def answer(call: Call) -> Output:
        if call.step == "review":
            lied = reviewing("hardest on parents", times=9)(call)
            return lied if "C" in json.loads(lied.text)["findings"] else review(call)
        if call.step == "outline" or "paragraphs" not in call.schema["properties"]:
            return scripted()(call)
        heading = heading_in(call)
        written.append(heading)
        copies = heading == "Too few cars" and written.count(heading) == 2
        body = SECTIONS["What a bed costs" if copies else heading]["paragraphs"]
        again = heading == "What a bed costs" and written.count(heading) == 2
        return Output(json.dumps(SECTIONS[heading] | {"paragraphs": [other] if again else body}))

    verdict = judged(answer, REQUEST.model_copy(update={"review": "enforce"}))
    assert written.count("What a bed costs") == 2
    assert verdict.reason is RejectionReason.CONTRADICTS_SOURCE, verdict


def test_a_refuted_summary_is_written_again_or_rejects_the_report() -> None:
    request = REQUEST.model_copy(update={"review": "enforce"})
    assert judged(reviewing("record crowds"), request).accepted
    assert judged(reviewing("record crowds", times=9), request).reason is RejectionReason.CONTRADICTS_SOURCE


def test_a_section_is_reviewed_too() -> None:
    request = ReportSection(source=SOURCE, heading="Too few cars", length="short", review="enforce")
    plan = registry.kind_of(request).plan
    assert run(plan(request, Context()), reviewing("hardly anyone builds")).accepted
    verdict = run(plan(request, Context()), reviewing("hardly anyone builds", times=9))
    assert verdict.reason is RejectionReason.CONTRADICTS_SOURCE


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


def test_reports_are_compared_by_what_their_sections_say() -> None:
    artifact = report(judged(scripted()))
    assert KIND.compared is not None
    assert KIND.compared(artifact).count("\n\n") == 2
    assert registry.find("report_section").compared is not None


def test_a_summary_is_written_of_what_a_prompt_has_room_for() -> None:
    long = " ".join(SECTIONS["Too few cars"]["paragraphs"]) + " "
    context = Context(max_context=1500)

    def answer(call: Call) -> Output:
        if step_of(call) == "summary" and len(call.messages[-1].content) > 2_600:
            return Output("", End.PROMPT_TOO_LONG)
        return scripted()(call)

    sections = [Section(heading=str(number), body=long * 7, citations=()) for number in range(7)]
    done = run(summarized(sections, SOURCE, REQUEST, context), answer)
    assert (done.text, done.rejection) == (SUMMARY, None)
