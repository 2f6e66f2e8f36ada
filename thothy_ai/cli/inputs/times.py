"""Parses times and durations: a time without a zone is local time.

A time that the local clock skips in spring is refused. A time that it shows twice in autumn means the first of the two;
an offset from UTC, as in 2026-10-25T02:30+01:00, selects the other.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from typer import BadParameter

from thothy_ai.cli.views.times import local
from thothy_ai.queue.moments import RANGE, nameable

MAX_DURATION = timedelta(days=36_500)  # a century either way leaves a date in the calendar
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+", re.ASCII)
_SECONDS = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)


def duration(text: str) -> timedelta:
    """Parse a duration such as `1h30m`, `45s` or `2d`. Raises `BadParameter`."""
    if not _DURATION.fullmatch(text.strip()):
        raise BadParameter(f"{text!r} is not a duration; examples: 45s, 30m, 1h30m, 2d")
    seconds = sum(float(n) * _UNITS[unit] for n, unit in _PART.findall(text))
    if seconds > MAX_DURATION.total_seconds():
        raise BadParameter(f"{text!r} is more than {MAX_DURATION.days:,} days")
    return timedelta(seconds=seconds)


def limit(text: str) -> timedelta:
    """Parse how long to wait: a duration, or a number of seconds. Raises `BadParameter`."""
    return duration(f"{text.strip()}s" if _SECONDS.fullmatch(text.strip()) else text)


def ago(text: str) -> datetime:
    """Parse a time; a duration counts back from now. Raises `BadParameter`."""
    return _parse(text, -1)


def since(text: str) -> datetime:
    """Parse the start of a window as `ago` does. Raises `BadParameter`, also for a duration of nothing."""
    if _DURATION.fullmatch(text.strip()) and not duration(text):
        raise BadParameter(f"{text!r} leaves an empty window; examples: 30m, 2h, 3d")
    return ago(text)


def ahead(text: str) -> datetime:
    """Parse a time; a duration counts forward from now. Raises `BadParameter`."""
    return _parse(text, +1)


def _parse(text: str, sign: int) -> datetime:
    text = text.strip()
    if _DURATION.fullmatch(text):
        moment = datetime.now(UTC) + sign * duration(text)
    else:
        try:
            typed = datetime.fromisoformat(text)
        except ValueError:
            raise BadParameter(
                f"{text!r} is neither a duration such as 45s, 30m, 1h30m or 2d, nor a time such as 2026-11-21T06:00"
            ) from None
        moment = _on_the_local_clock(typed) if typed.tzinfo is None else typed
    if not nameable(moment):
        raise BadParameter(f"{text!r} is not {RANGE}")
    return moment.astimezone(UTC)


def _on_the_local_clock(typed: datetime) -> datetime:
    """The moment at which the local clock shows this. Raises `BadParameter` if it never does."""
    try:
        first, second = (typed.replace(fold=fold).astimezone() for fold in (0, 1))
    except (ValueError, OverflowError):  # at the edge of the calendar
        return typed.replace(tzinfo=UTC)
    if first.replace(tzinfo=None) != typed != second.replace(tzinfo=None):
        near = " and ".join(each.isoformat() for each in sorted((first, second)))
        raise BadParameter(f"{typed.isoformat()} does not exist: the local clock skips it; nearby are {near}")
    return first


def check_order(since: datetime | None, until: datetime | None) -> None:
    """Refuse a window that ends before it begins. Raises `BadParameter`."""
    if since and until and until <= since:
        raise BadParameter(f"--until {local(until)} must be later than --since {local(since)}")
