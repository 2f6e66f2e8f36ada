"""The benchmark of the validators, and the page with its figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.corruption import CORRUPTIONS, corrupted
from benchmarks.validators import BEGIN, END, FOLDER, GATES, PAGE, declared, main, tables, written, wrong
from thothy_ai.evaluation.validators import JudgedText, by_group, by_sort, judge
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.evaluation.labelled import LabelledText, load

CORRECT = {
    "id": "x1", "kind": "hook", "language": "en", "request": {"source": "Crocks sold out."}, "artifact": {},
    "label": "reject", "reasons": ["off_schema"], "split": "tuned", "note": "why",
}  # fmt: skip


@pytest.fixture(scope="module")
def judged() -> list[JudgedText]:
    return list(map(judge, load(FOLDER)))


def test_the_page_has_today_s_figures(judged: Sequence[JudgedText]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page, tables(judged)) == page
    table = GATES.read_text(encoding="utf-8")
    assert declared(table, judged) == table


def test_gates_reject_at_most_one_good_text_in_a_hundred_of_each_language_group(judged: Sequence[JudgedText]) -> None:
    shares = {name: counts.good_rejected / counts.good for name, counts in by_group(judged).items()}
    assert {name: share for name, share in shares.items() if share > 0.01} == {}


@pytest.mark.parametrize(("sort", "least"), [("form", 0.98), ("language", 0.94), ("names", 0.71), ("quotations", 1.0)])
def test_gates_go_on_finding_what_they_find(judged: Sequence[JudgedText], sort: str, least: float) -> None:
    counts = by_sort(judged)[sort]
    assert counts.bad_rejected / counts.bad >= least


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "has no labelled texts, in files such as trend_summary.jsonl"),
        (b"", "has no labelled texts, in files such as trend_summary.jsonl"),
        (b"\xff\xfe", "hook.jsonl: 'utf-8' codec can't decode"),
        (b"[]", "hook.jsonl, line 1: expected a JSON object"),
        (b"{}", "hook.jsonl, line 1: has the wrong fields: ['artifact', "),
        (json.dumps(CORRECT).encode() + b"\n{", "hook.jsonl, line 2: Expecting property name"),
        (json.dumps(CORRECT | {"request": {"source_file": "none.txt"}}).encode(), "No such file or directory: "),
    ],
)
def test_a_folder_without_readable_texts_is_an_error(
    content: bytes | None, said: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = tmp_path / "texts"
    if content is not None:
        folder.mkdir()
        (folder / "hook.jsonl").write_bytes(content)
    monkeypatch.setattr("sys.argv", ["validators", str(folder)])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    assert said in printed.err


def test_a_folder_of_one_s_own_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hook.jsonl").write_text(json.dumps(CORRECT), encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["validators", str(tmp_path)])
    main()
    assert "| hook | – | – | 1 of 1" in capsys.readouterr().out


def labelled(accepted: bool, split: str = "tuned", **values: object) -> LabelledText:
    fields: dict[str, object] = {
        "id": "x1", "kind": "hook", "language": "de", "request": {}, "artifact": {}, "accepted": accepted,
        "reasons": frozenset() if accepted else frozenset({RejectionReason.EMPTY}), "split": split, "note": "why",
    }  # fmt: skip
    return LabelledText(**(fields | values))  # type: ignore[arg-type]


EMPTY = Rejection(RejectionReason.EMPTY, "no words")
DOUBT = Rejection(RejectionReason.NUMBER_NOT_IN_SOURCE, "'9' is not in the source")


def test_gates_and_findings_are_counted_apart_and_defects_of_meaning_too() -> None:
    unsupported = frozenset({RejectionReason.UNSUPPORTED})
    rows = [
        JudgedText(labelled(True), ()),
        JudgedText(labelled(True), (EMPTY, DOUBT)),
        JudgedText(labelled(True), (DOUBT,)),
        JudgedText(labelled(False), (EMPTY,)),
        JudgedText(labelled(False), ()),
        JudgedText(labelled(False), (DOUBT,)),
        JudgedText(labelled(False, reasons=unsupported), ()),
        JudgedText(labelled(False, split="unseen", language="zh"), ()),
    ]
    assert "| hook | 1 of 3 (33.3%) | 1 of 3 (33.3%) | 1 of 4 (25.0%) | 2 of 4 (50.0%) |" in tables(rows)
    assert "| Chinese and Japanese | – | – | – | – | – | – | 0 of 1 (0.0%) | 0 of 1 (0.0%) |" in tables(rows)
    assert "| meaning | 0 of 1 (0.0%) | 0 of 1 (0.0%) | – | – |" in tables(rows)
    assert list(wrong(rows)) == [
        "x1: rejected: empty: no words",
        "x1: missed: should be empty: why",
        "x1: missed, unseen",
    ]


def test_counts_go_to_the_entry_of_their_reason_and_what_is_a_gate_stays() -> None:
    rows = [JudgedText(labelled(True), (DOUBT,)), JudgedText(labelled(False), (DOUBT, EMPTY))]
    table = "# a\n# comment\n\n[empty]\ngate = true\nHindi = [7, 0]\n\n[number_not_in_source]\ngate = false\n"
    assert declared(table, rows) == (
        "# a\n# comment\n\n[empty]\ngate = true\nothers = [1, 0]\n\n"
        "[number_not_in_source]\ngate = false\nothers = [1, 1]\n"
    )


def test_a_split_without_texts_has_no_column() -> None:
    seen, unseen = (JudgedText(labelled(True, split), ()) for split in ("tuned", "unseen"))
    assert "unseen" not in tables([seen])
    assert "| hook | 0 of 1 (0.0%) | 0 of 1 (0.0%) | – | – | 0 of 1 (0.0%) |" in tables([seen, unseen])


def test_an_artifact_that_does_not_fit_the_schema_is_rejected() -> None:
    text = labelled(False, request={"source": "A source."}, artifact={"variants": []})
    assert judge(text).gate is not None


def test_the_page_keeps_the_rest() -> None:
    page = written(f"before\n{BEGIN}old{END}\nafter", "new")
    assert "old" not in page
    assert page.startswith("before\n")
    assert page.endswith("\nafter")
    assert written(page, "new") == page


SOURCE = (
    "In 2024, the port of Lisbon moved 36 ships and 5,400 tonnes of salt, says Rui Tavares. Prices rose to 12.5 euros."
)
TEXT = "Lisbon moved 5,400 tonnes of salt with 36 ships, and prices rose to 12.5 euros, says Rui Tavares of the port."


def faults() -> dict[str, str]:
    artifact = {"variants": [{"angle": "salt", "text": TEXT}]}
    good = labelled(True, language="en", request={"source": SOURCE}, artifact=artifact)
    return {each.name: each.text.artifact["variants"][0]["text"] for each in corrupted([good])}


def test_each_fault_changes_the_text_and_is_one_the_text_can_have() -> None:
    made = faults()
    assert TEXT not in made.values()
    assert {"a figure ten times as large", "two digits transposed", "another unit", "direction reversed"} <= set(made)
    assert "prices fell to" in made["direction reversed"]
    assert any(number in made["a figure ten times as large"] for number in ("360", "5,4000", "125 "))
    assert "a number left out" not in made  # a translation's fault


def test_faults_are_the_same_each_time_and_leave_the_good_text_alone() -> None:
    assert faults() == faults()
    assert set(faults()) <= set(CORRUPTIONS)


def test_bad_texts_are_not_corrupted() -> None:
    assert not list(corrupted([labelled(False)]))
