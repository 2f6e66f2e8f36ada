"""`thothy jobs watch`: what it says while a job waits, runs, is tried again and ends; and its text on a terminal."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from typer.testing import CliRunner, Result

from tests.support.command_terminal import on_terminal
from tests.support.engine_rows import register
from tests.support.fake_engine import FakeClient
from tests.support.home import THOTHY
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, RunnerBench, runner_bench
from tests.support.worker_fleet import environment
from thothy_ai.admin.job_watch import JobWatch
from thothy_ai.admin.model_aliases import set_alias
from thothy_ai.cli import app
from thothy_ai.cli.views.watch_job import status_of
from thothy_ai.queue.control import set_paused

Watch = Callable[..., Result]


@pytest.fixture
def watch(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Watch:
    for name, value in environment(queue.settings).items():
        if name.startswith("THOTHY_"):
            monkeypatch.setenv(name, value)

    def run(job_id: object, exit_code: int = 0) -> Result:
        done = CliRunner().invoke(app, ["jobs", "watch", str(job_id)])
        assert done.exit_code == exit_code, done.output
        return done

    return run


@contextmanager
def settling(bench: RunnerBench) -> Iterator[None]:
    """Everything is dispatched and run meanwhile."""
    thread = threading.Thread(target=bench.settle)
    thread.start()
    yield
    thread.join(PATIENCE)


def said(done: Result) -> list[str]:
    """The lines, without their times."""
    first, *lines = done.stdout.splitlines()
    return [first, *(line.partition("  ")[2] or line for line in lines)]


def test_a_job_that_succeeds_ends_with_its_artifact(queue: Queue, watch: Watch) -> None:
    [job_id] = queue.enqueue("ok then")
    with runner_bench(queue) as bench, settling(bench):
        done = watch(str(job_id)[-8:])
    first, *_, last, artifact = said(done)
    assert first == f"echo {job_id}"
    assert last.startswith("succeeded (1 attempt, ")
    assert json.loads(artifact) == {"echo": "ok then"}
    again = said(watch(job_id))
    assert again[1].startswith("attempt 1 succeeded (5 output tokens, 0.25 compute-seconds)")
    assert again[-2:] == [last, artifact]


def test_a_dead_job_is_told_with_every_attempt_and_its_reason(queue: Queue, watch: Watch) -> None:
    [job_id] = queue.enqueue("retry me")
    with runner_bench(queue) as bench, settling(bench):
        done = watch(job_id, exit_code=1)
    lines = said(done)
    for attempt in (1, 2, 3):
        assert f"attempt {attempt} rejected: repetition: again (5 output tokens, 0.25 compute-seconds)" in lines
    assert lines[-1].startswith("dead: repetition: again (3 attempts, ")


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        ("UPDATE job SET not_before = now() + interval '2 hours', delayed = TRUE", "queued: not before 20"),
        ("UPDATE job SET not_before = now() + interval '2 hours', attempt = 1", "queued: tried again at 20"),
        ("UPDATE job SET state = 'dispatched', dispatched_at = now()", "dispatched: no worker is connected"),
        ("UPDATE queue_control SET paused = TRUE, note = 'new image'", "queued: the queue is paused: new image"),
        ("SELECT 1", "queued: no dispatcher is connected"),
        (
            "UPDATE job SET state = 'running', attempt = 1, worker = 'w1', lease_until = now(), started_at = now()",
            "running: attempt 1 on w1",
        ),
    ],
)
def test_why_a_job_waits(queue: Queue, prepare: str, words: str) -> None:
    [job_id] = queue.enqueue("ok")
    queue.rows(prepare)
    assert status_of(JobWatch(queue.engine, job_id).look()).text.startswith(words)


def test_a_job_of_a_model_that_no_engine_serves_is_not_next(queue: Queue) -> None:
    [job_id] = queue.enqueue("ok", model="huge")
    register(queue, "a", "small")

    def text() -> str:
        snapshot = JobWatch(queue.engine, job_id).look()
        assert snapshot.waiting is not None
        return status_of(replace(snapshot, waiting=replace(snapshot.waiting, dispatcher=True))).text

    assert text() == "queued: no engine serves huge (`thothy models alias huge MODEL` lets another run it)"
    set_alias(queue.engine, "huge", "large")
    lets_run = "(`thothy models alias huge MODEL` lets another run it)"
    assert text() == f"queued: no engine serves huge, an alias of large {lets_run}"
    set_alias(queue.engine, "huge", "small")
    assert text() == "queued: next"


def test_places_in_the_queue_are_those_of_the_dispatcher(queue: Queue) -> None:
    jobs = [*queue.enqueue("low"), *queue.enqueue("high", priority=9)]
    jobs += queue.enqueue(*(f"more {number}" for number in range(3)), priority=5)
    places = {}
    for job_id in jobs:
        waiting = JobWatch(queue.engine, job_id).look().waiting
        assert waiting is not None
        places[waiting.ahead] = job_id
    assert sorted(places) == [0, 1, 2, 3, 4]
    assert [places[at] for at in range(5)] == [hint.job_id for hint in queue.dispatch()]


def test_an_unknown_job_is_one_line(queue: Queue, watch: Watch) -> None:
    done = watch("019a9e2b-7c44-7d1e-9a53-0c8b3d9a4f10", exit_code=1)
    assert done.stderr == "thothy: no job with id 019a9e2b-7c44-7d1e-9a53-0c8b3d9a4f10\n"


def test_on_a_terminal_the_text_is_shown_as_it_is_written(queue: Queue) -> None:
    client = FakeClient()
    client.said = ['{"echo":"live', " and well"]
    [job_id] = queue.enqueue("hang on")
    with runner_bench(queue, client) as bench:
        with on_terminal([*THOTHY, "jobs", "watch", str(job_id)], environment(queue.settings)) as screen:
            screen.wait_for("queued: no dispatcher is connected")
            set_paused(queue.engine, paused=True)
            screen.wait_for("the queue is paused")
            set_paused(queue.engine, paused=False)
            bench.hand_over()
            screen.wait_for("running: attempt 1 on worker-", '  "echo": "live and well')
            queue.producer.cancel(job_id)
            assert screen.ended() == 1
            assert "attempt 1 cancelled" in screen.text
            assert "\ncancelled: " not in screen.text
        with on_terminal(
            [*THOTHY, "jobs", "watch", str(queue.enqueue("later")[0])], environment(queue.settings)
        ) as screen:
            screen.wait_for("queued: ")
            screen.interrupt()
            assert screen.ended() == 130
            assert "Stopped watching; the job continues." in screen.text
