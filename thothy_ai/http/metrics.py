"""Metrics of the HTTP door."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter("thothy_http_requests", "Answered requests for text, by route and status.", ["route", "status"])
IN_FLIGHT = Gauge("thothy_http_in_flight", "Requests for text that are not answered yet.")
ABANDONED = Counter("thothy_http_abandoned", "Requests whose client left before their text was written.")
DENIED = Counter(
    "thothy_http_denied", "Requests that their sender may not make, or not now, by the error's code.", ["code"]
)
OWN_LIMITS = Gauge(
    "thothy_http_own_limits", "1 while Redis is away, and this process keeps the limits of keys by itself."
)
UNWRITTEN = Gauge("thothy_http_unwritten_sums", "Sums of what requests over HTTP used that are not on the bill yet.")
FIRST_TEXT = Histogram(
    "thothy_http_first_text_seconds",
    "Seconds from a streaming request to its first text.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2),
)
