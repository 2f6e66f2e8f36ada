"""Metrics that alerts read and that parts export which are merged later: delete this file with its uses then.

`thothy_forecast_publish_jobs` stays optional: a dispatcher exports it only if THOTHY_PUBLISH_BY is set.
"""

from __future__ import annotations

PENDING = frozenset({"thothy_forecast_late_jobs", "thothy_forecast_publish_jobs", "thothy_reaper_rule_age_seconds"})
