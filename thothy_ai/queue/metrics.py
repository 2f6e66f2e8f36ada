"""Counters of the queue's processes; the queue's state in Postgres is exported by `collector.py`."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

DISPATCHED = Counter("thothy_dispatched", "Jobs published to Redis.")
LIST_LENGTH = Gauge("thothy_redis_list_length", "Hints waiting in Redis, those of urgent jobs included.")
URGENT_LENGTH = Gauge("thothy_redis_urgent_length", "Hints of urgent jobs waiting in Redis.")
JOBS = Counter("thothy_jobs", "Jobs that ended, by kind and outcome.", ["kind", "outcome"])
RULE_FAILURES = Counter("thothy_reaper_rule_failures", "Failed runs of a housekeeping rule.", ["rule"])
RULE_AGE = Gauge(
    "thothy_reaper_rule_age_seconds",
    "Since a housekeeping rule last succeeded, or since its reaper began to lead; 0 in a reaper that does not lead.",
    ["rule"],
)
DROPPED = Counter("thothy_messages_dropped", "Messages dropped without running a job.", ["reason"])
