"""The producer API: enqueue jobs, follow their state, read their artifacts. `Async*` classes mirror the sync ones."""

from __future__ import annotations

from thothy_ai.producer.aio import AsyncJob, AsyncJobArtifact, AsyncProducer
from thothy_ai.producer.decisions import CurrentVersion, PastDecision
from thothy_ai.producer.drafts import EnqueueOptions
from thothy_ai.producer.gathering import Ended
from thothy_ai.producer.operations import Jobs
from thothy_ai.producer.snapshot import Snapshot
from thothy_ai.producer.sync import Job, JobArtifact, Producer
from thothy_ai.queue.webhooks.signing import WebhookMessage, verify_webhook

__all__ = [
    "AsyncJob",
    "AsyncJobArtifact",
    "AsyncProducer",
    "CurrentVersion",
    "Ended",
    "EnqueueOptions",
    "Job",
    "JobArtifact",
    "Jobs",
    "PastDecision",
    "Producer",
    "Snapshot",
    "WebhookMessage",
    "verify_webhook",
]
