"""What a dispatcher counts while it leads, and Redis as any of them sees it when asked; Postgres is in `queue.py`."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

DISPATCHED = Counter("thothy_dispatched", "Jobs that were published to Redis.")
LIST_LENGTH = Gauge("thothy_redis_list_length", "Hints that wait in Redis.")
