"""Formatting of times, durations and rates."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thothy_ai.cli.views import times


@given(st.datetimes(min_value=datetime(1975, 1, 1), max_value=datetime(2100, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_json_times_read_back(moment: datetime) -> None:
    assert datetime.fromisoformat(times.utc(moment)) == moment


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (3.21, "3.2 s"), (59.94, "59.9 s"), (250, "4 m 10 s"), (7500, "2 h 05 m"), (273600, "3 d 04 h")],
)
def test_spelling(seconds: float | None, text: str) -> None:
    assert times.spell(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"), [(0, "0.0 jobs/min"), (0.5, "30.0 jobs/min"), (1, "1.0 jobs/s"), (2000, "2,000.0 jobs/s")]
)
def test_rates(rate: float, text: str) -> None:
    assert times.per_time(rate) == text
