"""The publishing time: a time of day in a time zone, through changes of the clock."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from thothy_ai.errors import ConfigError
from thothy_ai.settings import Settings, next_publishing


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
def test_the_next_time(publish_by: str, now: str, then: str) -> None:
    assert next_publishing(publish_by, at(now)) == at(then)


def test_none_is_set() -> None:
    assert next_publishing(None, 0.0) is None


@pytest.mark.parametrize("wrong", ["5 pm", "25:00", "17:00 Europe/Nowhere", "17:00 ../etc", "Europe/Berlin"])
def test_a_wrong_time_is_refused(wrong: str, clean_environment: None) -> None:
    with pytest.raises(ConfigError, match=r"THOTHY_PUBLISH_BY: must be a time and a time zone"):
        Settings.load(publish_by=wrong)
