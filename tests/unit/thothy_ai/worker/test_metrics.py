"""What a worker counts of an attempt."""

from __future__ import annotations

from uuid import UUID

import pytest

from thothy_ai.db.states import JobState, Outcome
from thothy_ai.engine.api import Usage
from thothy_ai.worker import metrics
from thothy_ai.worker.record.finish import AttemptUsage, Finish


def seconds(kind: str, *reason: str) -> float:
    counter = metrics.WASTED_SECONDS if reason else metrics.GPU_SECONDS
    return counter.labels(kind, *reason)._value.get()


@pytest.mark.parametrize("devices", [1, 4])
def test_seconds_are_those_of_all_devices_of_the_engine(devices: int) -> None:
    kind = f"on {devices}"
    usage = AttemptUsage(UUID(int=5), Usage(10, 4, 5, 0.25), devices=devices)
    failed = Finish(UUID(int=1), 1, JobState.QUEUED, Outcome.FAILED, reason="worker_error", usage=usage)
    metrics.count(kind, failed, JobState.QUEUED)
    metrics.count(kind, Finish(UUID(int=2), 1, JobState.SUCCEEDED, Outcome.SUCCEEDED, usage=usage), JobState.SUCCEEDED)
    assert seconds(kind) == 2 * devices * 0.25
    assert seconds(kind, "worker_error") == devices * 0.25
