"""Formats times: local time in tables, UTC in JSON."""

from __future__ import annotations

from datetime import UTC, datetime


def local(moment: datetime | None) -> str:
    """Format a time in local time, to the second, or with its zone if `here` keeps that; a dash for None."""
    if moment is None:
        return "-"
    there = here(moment)
    return there.strftime("%Y-%m-%d %H:%M:%S" if there is not moment else "%Y-%m-%d %H:%M:%S %Z")


def here(moment: datetime) -> datetime:
    """The time on the local clock; unchanged if the local time would be outside the calendar."""
    try:
        return moment.astimezone()
    except OverflowError:
        return moment


def short(moment: datetime) -> str:
    """Format a local time for a narrow table: `14:05:09` today, `11-20 14:05` this year, otherwise the date."""
    there, now = here(moment), datetime.now(UTC).astimezone()
    if there.date() == now.date():
        return there.strftime("%H:%M:%S")
    return there.strftime("%m-%d %H:%M" if there.year == now.year else "%Y-%m-%d")


def utc(moment: datetime) -> str:
    """Format a time in UTC, as ISO 8601."""
    return moment.astimezone(UTC).isoformat()
