"""The kind in docs/kinds.md is complete and works as described."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from thothy_ai.jobs import Context, Output, registry

PAGE = Path(__file__).parents[3] / "docs" / "kinds.md"


def test_the_page_s_kind_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert code
    (tmp_path / "quiz.py").write_text(code[1], "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_extra", {})
    registry.load_extra(["quiz"])

    kind = registry.find("quiz_question")
    request = kind.request(source="Cabbage waits. Bread needs you at six in the morning.")
    verdicts = [
        kind.plan.judge(request, Output(f'{{"question":"{question}"}}'))
        for question in (
            "What needs you at six in the morning?",
            "Bread is what needs you.",
            "Wer braucht dich jeden Morgen um sechs?",
        )
    ]
    assert [verdict.reason for verdict in verdicts] == [None, "off_schema", "wrong_language"]
    assert kind.plan.prompt(request, Context())[-1].content.endswith(
        "Ask newspaper readers one question that the text above answers."
    )
    assert kind.plan.schema(request)["required"] == ["question"]
