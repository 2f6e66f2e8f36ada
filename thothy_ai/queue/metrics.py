"""Metrics that the queue's processes keep themselves; `collector.py` reads the others from Postgres."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

DISPATCHED = Counter("thothy_dispatched", "Jobs published to Redis.")
LIST_LENGTH = Gauge("thothy_redis_list_length", "Hints waiting in Redis, those of urgent jobs included.")
URGENT_LENGTH = Gauge("thothy_redis_urgent_length", "Hints of urgent jobs waiting in Redis.")
JOBS = Counter("thothy_jobs", "Jobs that ended, by kind and outcome.", ["kind", "outcome"])
NEEDED = Counter("thothy_reviews_needed", "Artifacts that a person is to review or to edit.", ["kind", "needs"])
RULE_FAILURES = Counter("thothy_reaper_rule_failures", "Failed runs of a housekeeping rule.", ["rule"])
RULE_AGE = Gauge(
    "thothy_reaper_rule_age_seconds",
    "Seconds since a housekeeping rule last succeeded, or since its reaper began to lead; 0 in a standby.",
    ["rule"],
)
REDIS_UP = Gauge("thothy_redis_up", "1 when Redis answered.")
LEADS = Gauge("thothy_leads", "1 while this process leads its role, 0 while it stands by.", ["role"])
LAST_ROUND = Gauge(
    "thothy_last_round_timestamp_seconds", "When this process last finished a round as its role's leader.", ["role"]
)
LEASES_LOST = Counter("thothy_leases_lost", "Jobs taken back because the lease of their worker had expired.")
REPUBLISHED = Counter("thothy_dispatches_republished", "Jobs queued again because their message was lost in Redis.")
DROPPED = Counter("thothy_messages_dropped", "Messages dropped without running a job.", ["reason"])
WEBHOOK_ATTEMPTS = Counter("thothy_webhook_attempts", "Attempts to deliver a webhook, by result.", ["result"])
