"""Shutdowns of the worker's loop: what finishes, what is released, and when its thread ends."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.support.fake_engine import FakeClient, FakeGeneration
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, RunnerBench, eventually, runner_bench
from thothy_ai.engine.api import GenerationRequest


def test_a_shutdown_finishes_what_it_can_and_releases_the_rest(queue: Queue) -> None:
    client = FakeClient()
    client.held = True
    with runner_bench(queue, client) as bench:
        quick, slow = bench.work("ok", "hang on")
        eventually(lambda: queue.count("running") == 2)
        bench.runner.shut_down(1000)
        client.held = False
        eventually(lambda: queue.job(quick).state == "succeeded")
        assert queue.job(slow).state == "running"
        bench.runner.shut_down(0)
        assert bench.runner.join(PATIENCE)
    job = queue.job(slow)
    assert (job.state, job.failures, job.attempt) == ("queued", 0, 1)
    assert queue.outcomes(slow) == ["released"]


class SlowToAbort(FakeClient):
    """Its generations stop slowly. `aborting`: one has been asked to stop."""

    def __init__(self) -> None:
        super().__init__()
        self.aborting = threading.Event()

    async def submit(self, request: GenerationRequest) -> FakeGeneration:
        await super().submit(request)
        return SlowGeneration(request, self)


class SlowGeneration(FakeGeneration):
    async def abort(self) -> None:
        self._client.aborting.set()
        await asyncio.sleep(0.5)
        await super().abort()


def test_a_second_shutdown_does_not_cut_releasing_off(queue: Queue) -> None:
    client = SlowToAbort()
    with runner_bench(queue, client) as bench:
        [job_id] = bench.work("hang on")
        eventually(lambda: client.submitted)
        bench.runner.shut_down(0)
        assert client.aborting.wait(PATIENCE)
        bench.runner.shut_down(0)
        assert bench.runner.join(PATIENCE)
    assert (queue.job(job_id).state, queue.job(job_id).failures) == ("queued", 0)
    assert queue.outcomes(job_id) == ["released"]


def test_a_shutdown_in_the_first_instant_ends_the_loop(queue: Queue) -> None:
    bench = RunnerBench(queue, FakeClient(), queue.settings)
    bench.runner._loop.call_soon(bench.runner._begin_shutdown, 0.0)  # sooner than any other thread could
    bench.runner.start()
    assert bench.runner.join(PATIENCE)
    assert not bench.died.is_set()


def test_a_runner_that_is_just_ending_may_be_shut_down_again(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread lives a little longer than its loop."""
    with runner_bench(queue) as bench:
        bench.runner.shut_down(0)
        assert bench.runner.join(PATIENCE)
        monkeypatch.setattr(bench.runner._thread, "is_alive", lambda: True)
        bench.runner.shut_down(0)
        monkeypatch.undo()
