"""RESULTS.md is what the files of results render to; a new measurement takes the place of its subject's last one."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from benchmarks import results
from benchmarks.results import PAGE, Table, load, record, render


def test_the_page_is_what_the_files_render_to() -> None:
    assert PAGE.read_text() == render(load()), "run: python -m benchmarks.results"
    assert len(PAGE.read_text().splitlines()) <= 250


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(results, "PAGE", tmp_path / "RESULTS.md")
    return tmp_path


def test_a_new_measurement_keeps_what_was_written_by_hand(folder: Path) -> None:
    record("A drain, CPU", "Drains", "make bench-cpu", [("seconds", "12.0")])
    file = folder / "a-drain-cpu.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"note": "The disk.", "prediction": "11 s"}))
    record(
        "A drain, CPU", "Drains", "make bench-cpu", [("seconds", "10.0", "11")], tables=[Table("all", ("a",), [("b",)])]
    )
    (measured,) = load(folder)
    assert (measured.figures, measured.note, measured.prediction) == ([["seconds", "10.0", "11"]], "The disk.", "11 s")
    assert measured.tables == [Table("all", ("a",), [["b"]])]
    page = (folder / "RESULTS.md").read_text()
    assert "| A drain, CPU | seconds | 10.0 | 11 |" in page
    assert "Predicted: 11 s. The disk." in page
    assert "12.0" not in page


def test_a_subject_shows_its_first_figures_only(folder: Path) -> None:
    record("Many", "Queue", "make", [(f"figure {number}", "1") for number in range(20)])
    page = (folder / "RESULTS.md").read_text()
    assert [f"figure {number} |" in page for number in range(20)] == [number < results.SHOWN for number in range(20)]


def test_benchmarks_record_in_areas_of_the_page() -> None:
    found = list[str]()
    for path in results.HERE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "record":
                found += [each.value for each in node.args[1:2] if isinstance(each, ast.Constant)]
    assert len(found) > 20
    assert set(found) <= set(results.AREAS)


def test_an_unknown_area_is_refused(folder: Path) -> None:
    with pytest.raises(AssertionError):
        record("A drain", "Elsewhere", "make", [])
