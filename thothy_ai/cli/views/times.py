"""Formats times, durations and rates: local time in tables, UTC in JSON."""

from __future__ import annotations

import math
from datetime import UTC, datetime


def local(moment: datetime | None) -> str:
    """Format a time in local time, to the second, or with its zone where `here` keeps that; a dash for None."""
    if moment is None:
        return "-"
    there = here(moment)
    return there.strftime("%Y-%m-%d %H:%M:%S" if there is not moment else "%Y-%m-%d %H:%M:%S %Z")


def here(moment: datetime) -> datetime:
    """The time on the local clock; the same object where the calendar ends before the local clock shows it."""
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


def spell(seconds: float | None) -> str:
    """Format seconds as `3.2 s`, `4 m 10 s`, `2 h 05 m` or `3 d 04 h`; a dash for None."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} m"
    return f"{whole // 86400} d {whole % 86400 // 3600:02} h"


def per_time(rate: float) -> str:
    """Format jobs per second as `2.5 jobs/s`, or as `30.0 jobs/min` below one per second."""
    return f"{rate:,.1f} jobs/s" if rate >= 1 else f"{60 * rate:.1f} jobs/min"


def spell_whole(seconds: float) -> str:
    """Format an estimate, which has no fractions of a second: `4 s`, `4 m 10 s`."""
    up = math.ceil(max(seconds, 0))
    return f"{up} s" if up < 60 else spell(up)
