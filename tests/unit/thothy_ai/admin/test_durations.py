"""Durations and rates in words."""

from __future__ import annotations

import pytest

from thothy_ai.admin.durations import per_time, spell


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (3.21, "3.2 s"),
        (59.94, "59.9 s"),
        (59.97, "1 m 00 s"),
        (250, "4 m 10 s"),
        (7500, "2 h 05 m"),
        (273600, "3 d 04 h"),
    ],
)
def test_spelling(seconds: float | None, text: str) -> None:
    assert spell(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"), [(0, "0.0 jobs/min"), (0.5, "30.0 jobs/min"), (1, "1.0 jobs/s"), (2000, "2,000.0 jobs/s")]
)
def test_rates(rate: float, text: str) -> None:
    assert per_time(rate) == text
