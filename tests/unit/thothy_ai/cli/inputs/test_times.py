"""Parsing of times and durations."""

from __future__ import annotations

import time
from collections.abc import Iterator
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


@pytest.mark.parametrize("text", ["yesterday", "25:00", "2026-13-01", ""])
def test_an_invalid_time_is_rejected(text: str) -> None:
    with pytest.raises(BadParameter, match="neither a duration"):
        times.ago(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("99999999w", "is more than 36,500 days"),
        ("9" * 400 + "s", "is more than 36,500 days"),
        ("36500d", "is not from 1970 to 2199"),
        ("9999-12-31T20:00:00+00:00", "is not from 1970 to 2199"),
        ("9999-12-31T23:59:59-14:00", "is not from 1970 to 2199"),
        ("9999-12-31T23:59", "is not from 1970 to 2199"),
        ("0001-01-01T00:00", "is not from 1970 to 2199"),
        ("0001-01-01T00:00+14:00", "is not from 1970 to 2199"),
        ("2200-01-01T00:00Z", "is not from 1970 to 2199"),
        ("1969-12-31T23:59Z", "is not from 1970 to 2199"),
    ],
)
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
def test_a_time_beyond_a_calendar_of_work_is_refused(text: str, says: str, local_zone: None, zone: str) -> None:
    with pytest.raises(BadParameter, match=says):
        times.ago(text)
    with pytest.raises(BadParameter):
        times.ahead(text.replace("36500d", "70000d"))


@pytest.fixture
def local_zone(monkeypatch: pytest.MonkeyPatch, zone: str) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("zone", "text", "before", "after"),
    [
        ("Europe/Berlin", "2026-03-29T02:30", "2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"),
        ("Europe/Berlin", "2026-03-29T02:00", "2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00"),
        ("America/New_York", "2026-03-08 02:59:59", "2026-03-08T01:59:59-05:00", "2026-03-08T03:59:59-04:00"),
        ("Australia/Lord_Howe", "2026-10-04T02:15", "2026-10-04T01:45:00+10:30", "2026-10-04T02:45:00+11:00"),
        ("Pacific/Apia", "2011-12-30T12:00", "2011-12-29T12:00:00-10:00", "2011-12-31T12:00:00+14:00"),
    ],
)
def test_a_time_that_the_clock_skips_is_refused_with_its_neighbours(
    local_zone: None, text: str, before: str, after: str
) -> None:
    with pytest.raises(BadParameter) as caught:
        times.ahead(text)
    said = f"{datetime.fromisoformat(text).isoformat()} does not exist: the local clock skips it; nearby are"
    assert str(caught.value) == f"{said} {before} and {after}"
    for named in (before, after):
        assert times.ahead(named) == datetime.fromisoformat(named)


@pytest.mark.parametrize(
    ("zone", "text", "meant"),
    [
        ("Europe/Berlin", "2026-10-25T02:30", "2026-10-25T02:30+02:00"),
        ("Europe/Berlin", "2026-10-25T03:00", "2026-10-25T03:00+01:00"),
        ("Europe/Berlin", "2026-03-29T01:59:59", "2026-03-29T01:59:59+01:00"),
        ("Europe/Berlin", "2026-03-29T03:00", "2026-03-29T03:00+02:00"),
        ("America/New_York", "2026-11-01T01:30", "2026-11-01T01:30-04:00"),
        ("Asia/Tokyo", "2026-11-01T01:30", "2026-11-01T01:30+09:00"),
    ],
)
def test_a_time_that_the_clock_shows_twice_is_the_first(local_zone: None, text: str, meant: str) -> None:
    assert times.ahead(text) == datetime.fromisoformat(meant)
