"""Fixtures of the integration tests; what the queue's are made of is in `tests/support/queue_bench.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.support.patience import PATIENCE
from tests.support.queue_bench import QUICK, Queue
from tests.support.worker_fleet import PATIENT, WorkerFleet
from thothy_ai.db.connect import make_engine
from thothy_ai.jobs import registry
from thothy_ai.producer import Producer, snapshot
from thothy_ai.settings import Settings


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    engine = make_engine(settings)
    yield engine
    engine.dispose()


@pytest.fixture
def quick(settings: Settings) -> Settings:
    registry.load_extra(("tests.support.echo_kind",))
    return settings.model_copy(update=QUICK)


@pytest.fixture
def queue(quick: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    monkeypatch.setattr(snapshot, "GRACE_SECONDS", PATIENCE)  # for a look: Postgres does not hang, and may be busy
    engine = make_engine(quick)
    with Producer(quick) as producer:
        yield Queue(quick, engine, producer)
    engine.dispose()


@pytest.fixture
def fleet(queue: Queue, tmp_path: Path) -> Iterator[WorkerFleet]:
    yield from _fleet(queue, tmp_path)


@pytest.fixture
def patient_fleet(queue: Queue, tmp_path: Path) -> Iterator[WorkerFleet]:
    """No lease runs out in it, and no message is held for lost."""
    yield from _fleet(queue, tmp_path, **PATIENT)


def _fleet(queue: Queue, folder: Path, **changes: object) -> Iterator[WorkerFleet]:
    log = folder / "workers.log"
    with ExitStack() as stack:
        yield WorkerFleet(queue, log, stack, **changes)
    print(log.read_text() if log.exists() else "no worker")  # noqa: T201 - shown when the test failed
