"""Parses times and durations: a time without a zone is local time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from typer import BadParameter

from thothy_ai.cli.views.times import local

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+", re.ASCII)
_SECONDS = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)


def duration(text: str) -> timedelta:
    """Parse a duration such as `1h30m`, `45s` or `2d`. Raises `BadParameter`."""
    if not _DURATION.fullmatch(text.strip()):
        raise BadParameter(f"{text!r} is not a duration; examples: 45s, 30m, 1h30m, 2d")
    try:
        return timedelta(seconds=sum(float(n) * _UNITS[unit] for n, unit in _PART.findall(text)))
    except OverflowError:
        raise BadParameter(f"{text!r} is too long") from None


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
    try:
        if _DURATION.fullmatch(text):
            return datetime.now(UTC) + sign * duration(text)
        return datetime.fromisoformat(text).astimezone(UTC)  # a time without a zone is local time
    except (ValueError, OverflowError):
        raise BadParameter(
            f"{text!r} is neither a duration such as 45s, 30m, 1h30m or 2d, nor a time such as 2026-11-21T06:00"
        ) from None


def check_order(since: datetime | None, until: datetime | None) -> None:
    """Refuse a window that ends before it begins. Raises `BadParameter`."""
    if since and until and until <= since:
        raise BadParameter(f"--until {local(until)} must be later than --since {local(since)}")
