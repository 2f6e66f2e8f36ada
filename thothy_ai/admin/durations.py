"""Formats durations and rates for the command line and the console."""

from __future__ import annotations

import math


def spell(seconds: float | None) -> str:
    """Format seconds as `3.2 s`, `4 m 10 s`, `2 h 05 m` or `3 d 04 h`; a dash for None."""
    if seconds is None:
        return "-"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} m"
    return f"{whole // 86400} d {whole % 86400 // 3600:02} h"


def spell_whole(seconds: float) -> str:
    """Format an estimate, without fractions of a second: `4 s`, `4 m 10 s`."""
    up = math.ceil(max(seconds, 0))
    return f"{up} s" if up < 60 else spell(up)


def per_time(rate: float) -> str:
    """Format jobs per second as `2.5 jobs/s`, or as `30.0 jobs/min` below one per second."""
    return f"{rate:,.1f} jobs/s" if rate >= 1 else f"{60 * rate:.1f} jobs/min"
