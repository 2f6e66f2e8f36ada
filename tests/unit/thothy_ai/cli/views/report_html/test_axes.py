"""Ticks at even local times, also across a change of the clock, and labels that fit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from thothy_ai.cli.views.report_html.axes import short_number, shortened, time_ticks

START = datetime(2026, 10, 20, 9, 7, 3, tzinfo=UTC)


@pytest.fixture
def paris(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Paris")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("paris")
@pytest.mark.parametrize("most", [4, 8])
@pytest.mark.parametrize(
    "span", [timedelta(minutes=2), timedelta(minutes=50), timedelta(hours=30), timedelta(days=9), timedelta(days=900)]
)
def test_ticks_are_few_even_and_in_the_window(span: timedelta, most: int) -> None:
    ticks = time_ticks(START, START + span, most)
    assert 1 <= len(ticks) <= most + 1
    assert all(START <= moment < START + span for moment, _ in ticks)
    assert len({moment for moment, _ in ticks}) == len(ticks)
    assert all((":" in label) == (f"{moment.astimezone():%H%M%S}" != "000000") for moment, label in ticks)


@pytest.mark.usefixtures("paris")
def test_days_begin_at_midnight_after_the_clock_has_changed() -> None:
    ticks = time_ticks(START, START + timedelta(days=7), 8)  # on 25 October an hour is repeated
    assert [label for _, label in ticks] == ["21 Oct", "22 Oct", "23 Oct", "24 Oct", "25 Oct", "26 Oct", "27 Oct"]
    assert {moment.astimezone().strftime("%H:%M") for moment, _ in ticks} == {"00:00"}


def test_labels_of_short_windows() -> None:
    two_minutes = time_ticks(START, START + timedelta(minutes=2), 4)
    assert all(label.count(":") == 2 for _, label in two_minutes)
    day = [label for _, label in time_ticks(START, START + timedelta(hours=24), 8)]
    assert sum(label.endswith(":00") for label in day) == len(day) - 1  # the one at midnight names the day


def test_a_long_name_loses_its_middle() -> None:
    assert shortened("translation", 14) == "translation"
    assert shortened("a_rather_long_name_of_a_kind", 14) == "a_rathe…a_kind"
    assert len(shortened("x" * 100, 13)) == 13


@pytest.mark.parametrize(
    ("value", "said"), [(0, "0"), (0.25, "0.25"), (950, "950"), (1500, "1.5k"), (20_000, "20k"), (3e6, "3M")]
)
def test_numbers_are_short(value: float, said: str) -> None:
    assert short_number(value) == said
