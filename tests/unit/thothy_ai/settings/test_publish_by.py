"""The publishing time: a time of day in a time zone, through changes of the clock."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from thothy_ai.errors import ConfigError
from thothy_ai.settings import Settings


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("publish_by", "now", "then"),
    [
        ("17:00", "2026-11-20T12:00", "2026-11-20T17:00"),
        ("17:00", "2026-11-20T17:00", "2026-11-21T17:00"),
        ("17:00 Europe/Berlin", "2026-11-20T15:59", "2026-11-20T16:00"),
        ("17:00 Europe/Berlin", "2026-07-20T15:01", "2026-07-21T15:00"),
        ("17:00 Europe/Berlin", "2026-03-28T17:00", "2026-03-29T15:00"),  # the clocks go forward
        ("00:30 America/Los_Angeles", "2026-11-20T12:00", "2026-11-21T08:30"),
    ],
)
def test_the_next_time(publish_by: str, now: str, then: str, clean_environment: None) -> None:
    settings = Settings.load(publish_by=publish_by)
    assert settings.publish_by is not None
    assert settings.publish_by.next_after(at(now)) == at(then)


def test_a_process_that_is_started_reads_the_same_time(
    monkeypatch: pytest.MonkeyPatch, clean_environment: None
) -> None:
    monkeypatch.setenv("THOTHY_PUBLISH_BY", " 17:00  Europe/Berlin ")
    first = Settings.load()
    monkeypatch.setenv("THOTHY_PUBLISH_BY", first.environment()["THOTHY_PUBLISH_BY"])
    assert Settings.load().publish_by == first.publish_by
    assert str(first.publish_by) == "17:00:00 Europe/Berlin"
    monkeypatch.delenv("THOTHY_PUBLISH_BY")
    assert Settings.load().publish_by is None


@pytest.mark.parametrize(
    "wrong", ["5 pm", "25:00", "17:00 Europe/Nowhere", "17:00 ../etc", "17:00+02:00", "Europe/Berlin"]
)
def test_a_wrong_time_is_refused(wrong: str, clean_environment: None) -> None:
    with pytest.raises(ConfigError, match=r"THOTHY_PUBLISH_BY: must be a time and a time zone"):
        Settings.load(publish_by=wrong)
