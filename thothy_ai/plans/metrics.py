"""Metrics of the judging processes."""

from __future__ import annotations

from prometheus_client import Gauge, Histogram

_JUDGING = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60)
JUDGE_SECONDS = Histogram("thothy_judge_seconds", "Seconds that a task takes in a judging process.", buckets=_JUDGING)
JUDGE_WAIT_SECONDS = Histogram(
    "thothy_judge_wait_seconds", "Seconds that a task waits for a judging process.", buckets=_JUDGING
)
JUDGE_TASKS = Gauge("thothy_judge_tasks", "Tasks that wait for a judging process, or run in one.")
