"""The pool's rules: callbacks on the hub only, silence when cancelled, one ticket per message."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from thothy_ai.queue.hints import TASK, Hint
from thothy_ai.worker.celery.pool import EnginePool


class HubStandIn:
    def __init__(self) -> None:
        self.ready: set[Callable[[], None]] = set()

    def call_soon(self, call: Callable[..., None], *args: Any) -> None:
        self.ready.add(lambda: call(*args))

    def _pop_ready(self) -> set[Callable[[], None]]:
        ready, self.ready = self.ready, set()
        return ready


class LoopStandIn:
    def __init__(self, settings: Any, worker: str, connect: Any, on_done: Any, on_death: Any) -> None:
        self.on_done = on_done
        self.hints: list[Hint] = []
        self.deadlines: list[float] = []
        self.hand_over = self.hints.append
        self.shut_down = self.deadlines.append

    def start(self) -> None:
        pass

    def join(self, seconds: float) -> bool:
        return True


class AppStandIn:
    class settings:  # noqa: N801
        shutdown_deadline_seconds = 7.0

    connect = None


class Message:
    """A message's request as Celery hands it over, and what was called back."""

    def __init__(self, args: Any, tag: str = "tag", task: str = TASK) -> None:
        self.outcomes: list[Any] = []
        self.errors: list[Any] = []
        self.pid: int | None = None
        self.args = (task, "id", {"args": args, "kwargs": {}, "properties": {"delivery_tag": tag}}, b"", None, None)

    def apply(self, pool: EnginePool, target: Callable[..., Any] = print) -> Any:
        return pool.apply_async(
            target,
            self.args,
            accept_callback=self._accept,
            callback=self.outcomes.append,
            error_callback=self.errors.append,
        )

    def _accept(self, pid: int, _: float) -> None:
        self.pid = pid


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[EnginePool]:
    monkeypatch.setattr("thothy_ai.worker.celery.pool.WorkerLoop", LoopStandIn)
    pool = EnginePool(4, app=AppStandIn())
    pool.start()
    pool.register_with_event_loop(HubStandIn())
    yield pool
    pool.stop()


@pytest.fixture
def hint() -> Hint:
    return Hint(uuid4(), 1)


def done(pool: EnginePool, *hints: Hint) -> None:
    pool._loop.on_done(list(hints))


def test_a_job_is_accepted_handed_over_and_done_only_on_the_hub(pool: EnginePool, hint: Hint) -> None:
    message = Message([str(hint.job_id), 1])
    message.apply(pool)
    assert (message.pid, pool._loop.hints) == (os.getpid(), [hint])
    done(pool, hint)
    assert message.outcomes == []
    pool._pump()
    assert message.outcomes == [(0, None, 0.0)]


def test_a_cancelled_job_calls_nothing(pool: EnginePool, hint: Hint) -> None:
    message = Message([str(hint.job_id), 1])
    handle = message.apply(pool)
    pool.terminate_job(os.getpid(), 15)
    handle.terminate(15)
    done(pool, hint)
    pool._pump()
    assert (message.outcomes, message.errors) == ([], [])


def test_the_same_message_again_is_adopted_and_runs_once(pool: EnginePool, hint: Hint) -> None:
    first, again = Message([str(hint.job_id), 1]), Message([str(hint.job_id), 1])
    first.apply(pool)
    again.apply(pool)
    done(pool, hint)
    pool._pump()
    assert (pool._loop.hints, first.outcomes, len(again.outcomes)) == ([hint], [], 1)


def test_another_message_for_the_same_dispatch_is_dropped(pool: EnginePool, hint: Hint) -> None:
    first, other = Message([str(hint.job_id), 1], "tag 1"), Message([str(hint.job_id), 1], "tag 2")
    first.apply(pool)
    other.apply(pool)
    pool._pump()
    assert (pool._loop.hints, first.outcomes, len(other.outcomes)) == ([hint], [], 1)


def test_a_malformed_message_is_done_without_the_loop(pool: EnginePool) -> None:
    message = Message(["no uuid", 1])
    message.apply(pool)
    pool._pump()
    assert (pool._loop.hints, len(message.outcomes)) == ([], 1)


def test_ordinary_tasks_run_in_threads_and_report_on_the_hub(pool: EnginePool) -> None:
    good, bad = Message([], task="report"), Message([], task="report")

    def fail(*_: Any) -> None:
        raise ValueError("no")

    good.apply(pool, lambda *_: (0, "done", 0.1))
    bad.apply(pool, fail)
    pool._threads.shutdown(wait=True)
    assert (good.outcomes, bad.errors) == ([], [])
    pool._pump()
    assert good.outcomes == [(0, "done", 0.1)]
    assert isinstance(bad.errors[0].exception.exc, ValueError)


def test_a_stop_shuts_the_loop_down_and_reports_what_is_left(pool: EnginePool, hint: Hint) -> None:
    message = Message([str(hint.job_id), 1])
    message.apply(pool)
    done(pool, hint)
    pool.stop()
    assert (pool._loop.deadlines, len(message.outcomes)) == ([7.0], 1)
