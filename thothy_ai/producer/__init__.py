"""The producer API: enqueue jobs, follow their state, read their artifacts. `Async*` classes mirror the sync ones."""

from __future__ import annotations

from thothy_ai.producer.aio import AsyncJob, AsyncProducer
from thothy_ai.producer.snapshot import Snapshot
from thothy_ai.producer.sync import Job, Producer
from thothy_ai.queue.drafts import EnqueueOptions

__all__ = ["AsyncJob", "AsyncProducer", "EnqueueOptions", "Job", "Producer", "Snapshot"]
