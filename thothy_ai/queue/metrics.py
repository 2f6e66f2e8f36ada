"""Counters of the queue's processes; the queue's state in Postgres is exported by `collector.py`."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

DISPATCHED = Counter("thothy_dispatched", "Jobs published to Redis.")
LIST_LENGTH = Gauge("thothy_redis_list_length", "Hints waiting in Redis, those of urgent jobs included.")
URGENT_LENGTH = Gauge("thothy_redis_urgent_length", "Hints of urgent jobs waiting in Redis.")
JOBS = Counter("thothy_jobs", "Jobs that ended, by kind and outcome.", ["kind", "outcome"])
DROPPED = Counter("thothy_messages_dropped", "Messages dropped without running a job.", ["reason"])
WEBHOOK_ATTEMPTS = Counter("thothy_webhook_attempts", "Attempts to deliver a webhook, by result.", ["result"])
