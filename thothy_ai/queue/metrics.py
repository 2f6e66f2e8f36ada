"""What the queue's own processes count; what Postgres knows of the queue is in `collector.py`."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

DISPATCHED = Counter("thothy_dispatched", "Jobs published to Redis.")
LIST_LENGTH = Gauge("thothy_redis_list_length", "Hints waiting in Redis.")
JOBS = Counter("thothy_jobs", "Jobs that ended, by kind and outcome.", ["kind", "outcome"])
DROPPED = Counter("thothy_messages_dropped", "Messages dropped unread.", ["reason"])
