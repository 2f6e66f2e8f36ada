"""Formatting of times."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from thothy_ai.cli.views import times


@given(st.datetimes(min_value=datetime(1975, 1, 1), max_value=datetime(2100, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_json_times_read_back(moment: datetime) -> None:
    assert datetime.fromisoformat(times.utc(moment)) == moment
