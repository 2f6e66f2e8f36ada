"""The benchmark of the validators, and the page with its figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.corruption import CORRUPTIONS, corrupted
from benchmarks.labelled import LabelledText, load
from benchmarks.validators import BEGIN, END, PAGE, Judged, judge, main, notes, tables, written, wrong
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason

CORRECT = {
    "id": "x1", "kind": "hook", "language": "en", "request": {"source": "Crocks sold out."}, "artifact": {},
    "label": "reject", "reasons": ["off_schema"], "split": "tuned", "note": "why",
}  # fmt: skip


@pytest.fixture(scope="module")
def judged() -> list[Judged]:
    return list(map(judge, load()))


def test_the_page_has_today_s_figures(judged: Sequence[Judged]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page, f"{tables(judged)}\n\n{notes(judged)}") == page


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
    assert "| hook | 0 of 1" in capsys.readouterr().out


def labelled(accepted: bool, split: str = "tuned", **values: object) -> LabelledText:
    fields: dict[str, object] = {
        "id": "x1", "kind": "hook", "language": "de", "request": {}, "artifact": {}, "accepted": accepted,
        "reasons": frozenset() if accepted else frozenset({RejectionReason.EMPTY}), "split": split, "note": "why",
    }  # fmt: skip
    return LabelledText(**(fields | values))  # type: ignore[arg-type]


EMPTY = Rejection(RejectionReason.EMPTY, "no words")


def test_what_counts_as_wrong() -> None:
    unsupported = frozenset({RejectionReason.UNSUPPORTED})
    rows = [
        Judged(labelled(True), None),
        Judged(labelled(True), EMPTY),
        Judged(labelled(False), EMPTY),
        Judged(labelled(False), None),
        Judged(labelled(False), Rejection(RejectionReason.REFUSAL, "")),
        Judged(labelled(False, reasons=unsupported), None),
        Judged(labelled(False, split="held_out", language="zh"), None),
    ]
    assert [(row.false_accept, row.false_reject) for row in rows] == [
        (False, False), (False, True), (False, False), (True, False), (False, False), (False, False), (True, False),
    ]  # fmt: skip
    assert [row.left_to_verification for row in rows] == [False] * 5 + [True, False]
    assert [row.other_reason for row in rows] == [False] * 4 + [True, False, False]
    assert "| hook | 1 of 3 (33.3%) | 1 of 2 (50.0%) | 1 of 1 (100.0%) | – |" in tables(rows)
    assert "| Chinese and Japanese | – | – | 1 of 1 (100.0%) | – |" in tables(rows)
    assert list(wrong(rows)) == [
        "x1: false reject: empty: no words",
        "x1: false accept: should be empty: why",
        "x1: false accept: should be empty: why",
    ]


def test_of_a_text_that_only_measures_nothing_but_its_id_is_listed() -> None:
    assert list(wrong([Judged(labelled(True, split="unseen"), EMPTY)])) == ["x1: false reject, unseen"]


def test_what_is_left_to_the_verification_is_counted_by_split() -> None:
    unsupported = frozenset({RejectionReason.UNSUPPORTED})
    found, missed = (Judged(labelled(False, "fresh", reasons=unsupported), each) for each in (EMPTY, None))
    assert "find 1 of 2 in `fresh`" in notes([found, missed])


def test_a_split_without_texts_has_no_column() -> None:
    seen, unseen = (Judged(labelled(True, split), None) for split in ("tuned", "unseen"))
    assert "unseen" not in tables([seen])
    assert "| hook | – | 0 of 1 (0.0%) | – | 0 of 1 (0.0%) |" in tables([seen, unseen])


def test_an_artifact_that_does_not_fit_the_schema_is_rejected() -> None:
    text = labelled(False, request={"source": "A source."}, artifact={"variants": []})
    assert judge(text).found is not None


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
