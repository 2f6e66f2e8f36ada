"""A worker's metrics."""

from __future__ import annotations

import time
from collections.abc import Iterable

from prometheus_client import Counter, Gauge, Histogram

from thothy_ai.db.states import JobState, Outcome
from thothy_ai.queue.metrics import JOBS, NEEDED
from thothy_ai.worker.record.claims import Claim
from thothy_ai.worker.record.finish import Finish

ATTEMPTS = Counter("thothy_attempts", "Attempts that ended, by kind and outcome.", ["kind", "outcome"])
ARTIFACTS = Counter("thothy_artifacts", "Outputs that were judged.", ["kind", "verdict", "reason"])
CLEAN = Counter("thothy_artifacts_clean", "Accepted artifacts in which nothing was found.", ["kind"])
GPU_SECONDS = Counter("thothy_gpu_seconds", "Seconds of devices, GPUs or a CPU, that attempts used.", ["kind"])
WASTED_SECONDS = Counter(
    "thothy_wasted_seconds",
    "Seconds of devices in attempts that led to no artifact or draft, by the outcome's reason.",
    ["kind", "reason"],
)
SAVED_TOKENS = Counter("thothy_saved_tokens", "Output tokens that early stops saved.", ["kind"])
IN_FLIGHT = Gauge("thothy_worker_in_flight", "Jobs that this worker runs.")
STALE_CLAIMS = Counter(
    "thothy_worker_claims_stale", "Messages whose job was already claimed, ended or dispatched again."
)
FENCED = Counter("thothy_results_fenced", "Results that arrived after another attempt had taken over their job.")
COMMIT_SECONDS = Histogram(
    "thothy_worker_commit_seconds",
    "Seconds from an engine's result to the commit of its outcome.",
    buckets=(0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.25, 0.5, 1, 5, 30),
)
QUEUE_SECONDS = Histogram(
    "thothy_queue_wait_seconds",
    "Seconds from when a job was due, or due again, to its claim.",
    ["kind"],
    buckets=(0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 900, 1800, 3600, 2 * 3600, 4 * 3600, 8 * 3600, 24 * 3600),
)
RETRIES = Counter("thothy_retries", "Attempts whose job is queued again, by their reason.", ["kind", "reason"])


def count_claims(claims: Iterable[Claim]) -> None:
    """Count claimed jobs by how long they had waited."""
    for claim in claims:
        QUEUE_SECONDS.labels(claim.kind).observe(claim.waited_seconds)


def count(kind: str, finish: Finish, state: JobState | None) -> None:
    """Count an attempt whose outcome is committed; `state` is its job's, None when the attempt was fenced off."""
    if state is None:
        FENCED.inc()
        return
    ATTEMPTS.labels(kind, finish.outcome).inc()
    if finish.answered_at is not None:
        COMMIT_SECONDS.observe(time.monotonic() - finish.answered_at)
    GPU_SECONDS.labels(kind).inc(finish.usage.device_seconds)
    SAVED_TOKENS.labels(kind).inc(finish.usage.saved_tokens)
    if finish.outcome is not Outcome.SUCCEEDED and not (finish.is_draft and finish.needs):
        reason = finish.reason or finish.outcome
        WASTED_SECONDS.labels(kind, reason).inc(finish.usage.device_seconds)
    if state is JobState.QUEUED:
        RETRIES.labels(kind, finish.reason or finish.outcome).inc()
    if state.terminal:
        JOBS.labels(kind, state).inc()
    if finish.judged is not None:
        accepted = finish.outcome is Outcome.SUCCEEDED
        ARTIFACTS.labels(kind, finish.judged.verdict, "" if accepted else finish.reason).inc()
        if accepted and not finish.judged.findings:
            CLEAN.labels(kind).inc()
    if finish.needs is not None:
        NEEDED.labels(kind, finish.needs).inc()
