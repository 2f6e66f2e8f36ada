"""The picture of `thothy eval` is drawn for figures that only some results have, and for none accepted."""

from __future__ import annotations

from pathlib import Path

from thothy_ai.cli.views.evaluation_plot import draw
from thothy_ai.evaluation.results import CaseResult, EvaluationResult


def result(name: str, accepted: int, coverage: float | None, chrf: float | None) -> EvaluationResult:
    cases = tuple(
        CaseResult(str(n), n < accepted, None, "", 1, coverage, None, None, 1.5, 20, None, "") for n in range(4)
    )
    return EvaluationResult(name, name, "cpu", "hook", "2", 1, chrf, cases)


def test_only_figures_that_a_result_has_are_drawn(tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    draw([result("now", 3, 0.5, None), result("before", 0, None, None)], path)
    comments = path.read_text(encoding="utf-8")
    assert all(
        f"<!-- {text} -->" in comments
        for text in ("now", "before", "form yield", "clean yield", "coverage", "0.75", "2")
    )
    assert "chrF" not in comments
    assert "verified" not in comments


def test_a_png_is_written(tmp_path: Path) -> None:
    draw([result("now", 4, 0.5, 51.5)], tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
