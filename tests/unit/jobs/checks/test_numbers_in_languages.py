"""Numbers as editors in fifteen languages write them, compared with a source in one of these languages.

`tests/data/numbers.json` has the sources by their language, and texts as source, locale and text: their numbers are
those of the source (`known`), or are not (`new`).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.jobs.checks.reasons import reason
from thothy_ai.jobs import RejectionReason, checks

DATA = json.loads(Path("tests/data/numbers.json").read_text(encoding="utf-8"))
SOURCES: dict[str, str] = DATA["sources"]


@pytest.mark.parametrize(("source", "locale", "text"), DATA["known"])
def test_of_the_source(source: str, locale: str, text: str) -> None:
    assert checks.new_number(text, SOURCES[source], locale) is None


@pytest.mark.parametrize(("source", "locale", "text"), DATA["new"])
def test_not_of_the_source(source: str, locale: str, text: str) -> None:
    assert reason(checks.new_number(text, SOURCES[source], locale)) is RejectionReason.NUMBER_NOT_IN_SOURCE
