"""What `thothy review` shows: places, changes and excerpts, and that no text harms the terminal or its width."""

from __future__ import annotations

import re
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest
from rich.cells import cell_len

from thothy_ai.cli.views.artifact import verification_lines
from thothy_ai.cli.views.review import excerpt, marked, version_lines, word_changes
from thothy_ai.cli.views.tables import runs_right_to_left
from thothy_ai.db.states import JobState, ReviewState
from thothy_ai.jobs import registry
from thothy_ai.producer.decisions import CurrentVersion, PastDecision

if TYPE_CHECKING:
    from sqlalchemy import RowMapping

NOW = datetime(2026, 11, 21, 6, tzinfo=UTC)
ARABIC = "ارتفعت أسعار القمح في مصر بنسبة أربعين في المئة خلال عام واحد كما يقول التجار في القاهرة والإسكندرية"
CHINESE = "北京的夜班列车又回来了，去年售出的卧铺票比前年多了四成，铁路公司说这只是开始。" * 3


def finding(start: Any, end: Any, part: str | None = "text", **values: Any) -> dict[str, Any]:
    return {
        "reason": "number_not_in_source", "detail": "'40' is not in the source", "part": part, "start": start,
        "end": end, "source_start": None, "source_end": None, "weight": 0.6, "by": "rule", **values,
    }  # fmt: skip


def version(text: str, *findings: dict[str, Any], **values: Any) -> CurrentVersion:
    body = {"text": text}
    given: dict[str, Any] = {
        "job_id": UUID(int=1), "tenant": "t", "kind": "translation", "state": JobState.SUCCEEDED,
        "review": ReviewState.NEEDS_REVIEW, "version": 1, "attempt": 1,
        "deadline": datetime.now(UTC) + timedelta(hours=2), "finished_at": NOW, "source_key": "s", "reason": None,
        "detail": None, "locale": "en", "written": body, "text": text, "body": body, "problem": None,
        "edited_by": None, "priority": 0, "max_attempts": 3, "max_compute_seconds": None,
        "findings": findings, "verification": None, "request": {"source": "x" * 1000, "target_locale": "de"},
    }  # fmt: skip
    return CurrentVersion(**given | values)


def test_findings_stand_at_their_places() -> None:
    one, two, within = finding(0, 5), finding(6, 11), finding(6, 8)
    assert marked("Sales rose.", [(1, one), (2, two)]) == "[1: Sales] [2: rose.]"
    assert marked("Sales rose.", [(1, two), (2, within)]) in ("Sales [2: [1: ro]se.]", "Sales [1: [2: ro]se.]")
    assert marked("Sales rose.", [(7, two), (9, two), (1, one)]) == "[1: Sales] [7,9: rose.]"


def test_a_finding_on_a_whole_part_stands_at_its_heading() -> None:
    body = {"points": [{"point": "Sales rose.", "quote": "They rose."}]}
    lines = list(version_lines(version("", finding(0, 0, "points.0"), body=body, written=body), 80))
    assert [line for line in lines if line.startswith("points")] == ["points.0.point: [1]", "points.0.quote:"]


@pytest.mark.parametrize(("start", "end"), [(0, 99), (-4, 3), (5, 5), (7, 3), (None, None), ("0", "3"), (99, 120)])
def test_a_place_outside_the_text_is_not_marked(start: Any, end: Any) -> None:
    assert marked("Sales rose.", [(1, finding(start, end))]) == "Sales rose."
    assert excerpt("Sales rose.", start, end) == ""
    assert "'40' is not" in " ".join(version_lines(version("Sales rose.", finding(start, end)), 80))


def test_fields_have_the_order_of_their_class() -> None:
    names = list(registry.find("trend_summary").artifact.model_fields)
    point = {"quote": "Sales rose.", "point": "They rose."}
    body: dict[str, Any] = dict.fromkeys(sorted(names, reverse=True), "x") | {"key_points": [point]}
    row = {field.name: getattr(version("x"), field.name) for field in fields(CurrentVersion)}
    read = CurrentVersion.of(cast("RowMapping", row | {"kind": "trend_summary", "body": body, "written": body}), [])
    assert list(read.body or ()) == list(read.written or ()) == names
    assert read.body == body


def test_an_excerpt_shows_what_stands_around() -> None:
    source = "word " * 60 + "rose by 14 percent" + " word" * 60
    shown = excerpt(source, 300, 318)
    assert "word [rose by 14 percent] word" in shown
    assert (shown[0], shown[-1]) == ("…", "…")
    assert len(shown) < 300


def test_what_is_superseded_says_so() -> None:
    superseded = version("Text.", review=ReviewState.SUPERSEDED, detail="the text that it follows is another now")
    assert "Reopen it to decide: the text that it follows is another now" in list(version_lines(superseded, 80))


def test_changes_are_shown_word_by_word() -> None:
    assert (
        word_changes("Sales rose by 40 percent.", "Sales rose by 14 percent.") == "Sales rose by [-40-]{+14+} percent."
    )
    assert word_changes("", "New.") == "{+New.+}"


def test_changes_of_long_texts_are_shown_line_by_line() -> None:
    """Word by word, a text of a megabyte would take hours."""
    lines = [f"{'so ' * 40}{number}\n" for number in range(8_000)]
    old, new = "".join(lines), "".join([*lines[:100], "new\n", *lines[100:]])
    assert word_changes(old, new) == old.replace(lines[100], "{+new\n+}" + lines[100])
    assert word_changes("so it " * 100_000, "it so " * 100_000).count("{+") == 1


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[2J\x1b]0;owned\x07 \u202egnp.exe \u2066hidden\u2069 \x9b31m",
        ARABIC,
        CHINESE,
        "W" * 300,
        "a\ttab\nand lines\r\nof all sorts\u2028here",
        "e\u0301" * 200,
    ],
)
def test_no_text_harms_the_terminal_or_its_width(text: str) -> None:
    past = PastDecision(1, "hold", text[:40], NOW, text, None)
    shown = version(text, finding(0, 3, detail=text), problem=f"text: {text}", edited_by="Ann",
                    written={"text": "before"}, decisions=(past,))  # fmt: skip
    lines = list(version_lines(shown, 80))
    assert all(cell_len(line) <= 80 for line in lines)
    assert not any(char in line for line in lines for char in "\x1b\x9b\x07\u202e\u2066\u2069\n\r")


def test_a_draft_says_what_is_wrong_and_one_of_a_gate_which_rejected_it() -> None:
    draft = version("x", review=ReviewState.NEEDS_EDIT, problem="text: must have at least 2 characters")
    assert "A draft, which breaks the schema: text: must have at least 2 characters" in list(version_lines(draft, 80))
    gated = version("x", review=ReviewState.NEEDS_EDIT, reason="repetition", detail="'so' 9 times")
    assert "A gate rejected it: repetition: 'so' 9 times" in list(version_lines(gated, 80))
    lost = version("not JSON", body=None)
    assert "  not JSON" in list(version_lines(lost, 80))


VERIFIED = {"name": "xnli", "weights": "ab", "weight": 0.9, "measured_at": "2026-11-27T10:00:00+00:00"}


@pytest.mark.parametrize(
    ("verification", "said"),
    [
        (None, "Meaning not checked: no model has held this text against its source."),
        (VERIFIED, "Meaning checked by xnli (doubts right in 90%, measured 2026-11-27)."),
        ({**VERIFIED, "measured_at": None}, "Meaning checked by xnli (not measured)."),
    ],
)
def test_whether_a_model_has_checked_the_meaning_is_said(verification: dict[str, Any] | None, said: str) -> None:
    assert said in list(version_lines(version("Sales rose.", verification=verification), 80))


def test_text_that_runs_from_right_to_left_stands_alone() -> None:
    shown = version(ARABIC, finding(0, 6, source_start=0, source_end=6), edited_by="Ann", written={"text": "قبل"},
                    request={"source": ARABIC, "target_locale": "ar"})  # fmt: skip
    lines = list(version_lines(shown, 80))
    mixed = [line for line in lines if runs_right_to_left(line) and re.search("[A-Za-z]", line)]
    assert mixed == []
    assert "    source:" in lines


def test_the_record_of_a_verification_names_the_model_also_of_claims_that_were_not_read() -> None:
    claims = [{"claim": "It rained.", "label": "unread", "evidence": ""}]
    lines = list(verification_lines({**VERIFIED, "claims": claims}))
    assert lines[0] == "Verification by xnli (doubts right in 90%, measured 2026-11-27): 1 unread"
