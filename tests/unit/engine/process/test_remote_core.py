"""The frontend's half, against a process that the test plays."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.patience import PATIENCE
from thothy_ai.engine.api import CoreStats, EngineInfo, EngineStats, FinishReason, SamplingParams, Usage
from thothy_ai.engine.api.core import CoreRequest, Event, FinishedEvent, RefusedEvent, StepFailedError, TokenEvent
from thothy_ai.engine.api.errors import EngineLostError, EngineStoppedError
from thothy_ai.engine.process.remote_core import RemoteCore
from thothy_ai.engine.wire.channel import Channel
from thothy_ai.engine.wire.core_messages import (
    FROM_CORE,
    TO_CORE,
    AbortRequest,
    CoreEnded,
    FromCore,
    StepReport,
    StopCore,
    ToCore,
)

INFO = EngineInfo("s", "m", "cpu", "float32", 16, 10, 100, 1.5)
REQUEST = CoreRequest("a", (1, 2), SamplingParams(), schema="{}")
USAGE = Usage(2, 0, 1, 0.25)


@dataclass
class Stage:
    core: RemoteCore
    peer: Channel[FromCore, ToCore]
    peer_socket: socket.socket
    heard: Iterator[ToCore]
    events: queue.SimpleQueue[list[Event]]

    def report(self, *events: Event, steps: int = 1) -> None:
        stats = EngineStats(core=CoreStats(steps=steps))
        self.peer.send(StepReport.of(events, stats))

    def next(self) -> list[Event]:
        return self.events.get(timeout=PATIENCE)


@pytest.fixture
def stage() -> Iterator[Stage]:
    ours, theirs = socket.socketpair()
    events: queue.SimpleQueue[list[Event]] = queue.SimpleQueue()
    channel, peer = Channel(ours, TO_CORE, FROM_CORE), Channel(theirs, FROM_CORE, TO_CORE)
    core = RemoteCore(channel, INFO, events.put, lambda: "it was killed")
    yield Stage(core, peer, theirs, iter(peer), events)
    peer.close()
    core.join()
    channel.close()


def test_what_it_is_told_crosses_in_order(stage: Stage) -> None:
    stage.core.submit(REQUEST)
    stage.core.abort("a", FinishReason.STOP)
    stage.core.stop()
    assert [next(stage.heard) for _ in range(3)] == [REQUEST, AbortRequest("a", FinishReason.STOP), StopCore()]
    assert stage.core.info() == INFO


def test_events_and_statistics_come_together_and_a_step_without_events_is_progress(stage: Stage) -> None:
    stage.core.submit(REQUEST)
    stage.report(steps=6)
    stage.report(TokenEvent("a", (5,)), steps=7)
    assert stage.next() == [TokenEvent("a", (5,))]
    assert stage.core.stats().core.steps == 7
    assert stage.events.empty()


def test_a_process_that_dies_takes_only_what_is_in_flight(stage: Stage) -> None:
    for id_ in ("done", "a", "b"):
        stage.core.submit(CoreRequest(id_, (1,), SamplingParams()))
    stage.report(FinishedEvent("done", FinishReason.STOP, USAGE))
    assert stage.next()[0].id == "done"
    stage.peer.close()
    lost = stage.next()
    assert {event.id for event in lost} == {"a", "b"}
    assert all(isinstance(event, RefusedEvent) and isinstance(event.error, EngineLostError) for event in lost)
    stage.core.join()
    assert isinstance(stage.core.failure, StepFailedError)
    assert str(stage.core.failure) == "step failed with a, b: it was killed"
    stage.core.submit(REQUEST)
    assert isinstance(stage.next()[0].error, EngineLostError)


def test_a_failed_step_is_the_failure(stage: Stage) -> None:
    stage.peer.send(CoreEnded.of(StepFailedError(("a",), "CUDA error")))
    stage.core.join()
    assert str(stage.core.failure) == "step failed with a: CUDA error"


def test_a_core_that_was_stopped_is_no_failure(stage: Stage) -> None:
    stage.core.submit(REQUEST)
    stage.peer.send(CoreEnded.of(None))
    assert isinstance(stage.next()[0].error, EngineStoppedError)
    stage.core.join()
    assert stage.core.failure is None


@pytest.mark.parametrize("payload", [b"", b"\x92\xaaStepReport\x80", b"\x92\xa9LoadModel\x80"])
def test_a_message_that_makes_no_sense_ends_everything_instead_of_hanging(
    stage: Stage, payload: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    stage.core.submit(REQUEST)
    stage.peer_socket.sendall(len(payload).to_bytes(4, "big") + payload)
    assert isinstance(stage.next()[0].error, EngineLostError)
    stage.core.join()
    assert stage.core.failure is not None
    assert "cannot be understood" in caplog.text
