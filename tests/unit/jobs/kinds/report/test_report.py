"""The kind `report`, with scripted answers: outline, sections, summary, document."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from tests.support.scripted_report import KIND, REQUEST, SECTIONS, SOURCE, SUMMARY, judged, report, scripted, step_of
from thothy_ai.jobs import Report, ReportArtifact, registry
from thothy_ai.jobs.api.plan import Call, Context, End, Output, run
from thothy_ai.jobs.kinds.report.summary import summarized
from thothy_ai.jobs.kinds.report.values import Section
from thothy_ai.jobs.kinds.report.writer import Writer

HEADINGS = list(SECTIONS)


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
    assert ReportArtifact(title="T", summary="S", sections=tuple(sections)).markdown.count("[^1]") == 3


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


@pytest.mark.parametrize("sections", [2, 8])
def test_the_number_of_sections_is_bounded(sections: int) -> None:
    with pytest.raises(ValidationError):
        Report(source=SOURCE, sections=sections)


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
    done = run(summarized(sections, SOURCE, REQUEST, context, Writer()), answer)
    assert (done.text, done.rejection) == (SUMMARY, None)
