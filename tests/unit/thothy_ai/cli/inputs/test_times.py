"""Parsing of times and durations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from typer import BadParameter

from thothy_ai.cli.inputs import times


@pytest.mark.parametrize(
    ("text", "seconds"), [("45s", 45), ("30m", 1800), ("1h30m", 5400), ("2d", 172800), ("1.5h", 5400), ("1w", 604800)]
)
def test_durations(text: str, seconds: float) -> None:
    assert times.duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "2", "h", "-2h", "2 hours", "2h5", "1e3s", "99999999999999w", "٢h"])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(BadParameter):
        times.duration(text)


@pytest.mark.parametrize(("text", "seconds"), [("600", 600), (" 0.5 ", 0.5), ("10m", 600), ("0s", 0)])
def test_a_limit_is_a_duration_or_seconds(text: str, seconds: float) -> None:
    assert times.limit(text) == timedelta(seconds=seconds)
    with pytest.raises(BadParameter, match="is not a duration"):
        times.limit("-1")


def test_a_duration_counts_from_now_in_its_direction() -> None:
    before, hours = datetime.now(UTC), timedelta(hours=2)
    ago, ahead = times.ago("2h"), times.ahead("2h")
    after = datetime.now(UTC)
    assert before - hours <= ago <= after - hours
    assert before + hours <= ahead <= after + hours


@pytest.mark.parametrize("text", ["0h", "0s", " 0m0s "])
def test_a_window_cannot_start_now(text: str) -> None:
    with pytest.raises(BadParameter, match="leaves an empty window; examples: 30m"):
        times.since(text)
    before = datetime.now(UTC)
    assert before <= times.ago(text) <= datetime.now(UTC)


def test_a_window_starts_at_a_time_or_some_time_ago() -> None:
    assert times.since("2026-11-21T06:00+02:00") == times.ago("2026-11-21T06:00+02:00")
    assert times.since("0.5s") < datetime.now(UTC)


def test_times_with_a_zone_keep_it_and_others_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    assert times.ago("2026-11-21T06:00+02:00") == datetime(2026, 11, 21, 4, tzinfo=UTC)
    naive = datetime(2026, 11, 21, 6).astimezone(UTC)
    assert times.ago("2026-11-21T06:00") == naive


@pytest.mark.parametrize("text", ["yesterday", "25:00", "2026-13-01", "", "99999999w"])
def test_an_invalid_time_is_rejected(text: str) -> None:
    with pytest.raises(BadParameter, match="neither a duration"):
        times.ago(text)
