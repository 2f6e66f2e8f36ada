"""How a stack stops: in which order, how long, and what becomes of jobs whose worker does not answer."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.support.null_stack import NEVER, NullStack
from tests.support.patience import PATIENCE
from tests.support.queue_bench import eventually
from thothy_ai.db.fragments import FREE_MACHINE_LOSSES
from thothy_ai.embedded import EmbeddedStack, Postgres, open_jobs
from thothy_ai.embedded.open_jobs import OpenJobs
from thothy_ai.embedded.shutdown import Phase, StopProgress
from thothy_ai.embedded.stack import DEADLINE_SECONDS
from thothy_ai.engine.api.inflight_log import CORE, AdmissionFile
from thothy_ai.engine.serving.client import had_begun
from thothy_ai.errors import JobCancelledError
from thothy_ai.jobs import Hook
from thothy_ai.producer import Producer
from thothy_ai.settings import Settings

pytestmark = pytest.mark.usefixtures("clean_environment")

PATIENT: dict[str, Any] = {"lease_seconds": 1000, "dispatch_timeout_seconds": 1000}
CLAIM = """
    UPDATE job
    SET state = 'running', attempt = attempt + 1, worker = 'gone', lease_until = now() + interval '1 hour',
        started_at = now(), dispatched_at = now()
    WHERE id = %s
"""


class Observer:
    """Keeps what it is told, and hurries the stop at the first report of a phase."""

    def __init__(self, hurry_at: Phase | None = None) -> None:
        self.hurry = threading.Event()
        self.seen: list[StopProgress] = []
        self.on_begin: Callable[[], object] = list
        self._hurry_at = hurry_at

    def begin(self) -> None:
        self.on_begin()

    def report(self, progress: StopProgress) -> None:
        self.seen.append(progress)
        if progress.phase is self._hurry_at:
            self.hurry.set()

    def phases(self) -> list[Phase]:
        return list(dict.fromkeys(progress.phase for progress in self.seen))


def rows(postgres: Postgres, query: str, *parameters: Any) -> list[Any]:
    with psycopg.connect(postgres.url.replace("+psycopg", "")) as connection:
        done = connection.execute(query.encode(), parameters or None)
        return done.fetchall() if done.description else []


def test_jobs_of_a_worker_that_does_not_answer_are_released_for_it(home: Path) -> None:
    observer = Observer(hurry_at=Phase.FINISH)
    settings = Settings.load(home=home, shutdown_deadline_seconds=1000, **PATIENT)
    with NullStack(settings, latency=NEVER, observer=observer) as stack, Producer(stack.settings) as producer:
        job = producer.enqueue(Hook(source="Crocks sold out in March."))
        eventually(lambda: job.refresh().state == "running")
        worker = stack.pids()["worker"]
        assert worker is not None
        os.kill(worker, signal.SIGSTOP)
    assert observer.phases() == [Phase.FINISH, Phase.HURRY, Phase.SERVICES, Phase.SERVERS]
    assert (observer.seen[0].running, observer.seen[-1].open) == (1, 1)
    with Postgres(home / "postgres") as postgres:
        assert rows(postgres, "SELECT state, failures, attempt, worker, reason FROM job") == [
            ("queued", 0, 1, None, "shutdown")
        ]
        assert rows(
            postgres, "SELECT outcome, worker LIKE %s, engine_session_id IS NULL FROM attempt", f"%:{worker}:%"
        ) == [("released", True, False)]
        assert rows(postgres, "SELECT event, detail FROM job_event") == [("released", "shutdown")]


def test_a_second_ctrl_c_is_expected_before_the_stop_does_anything(home: Path) -> None:
    observer, watched = Observer(), []
    with EmbeddedStack(Settings.load(home=home), services=(), observer=observer) as stack:
        observer.on_begin = lambda: watched.append((stack.wait(0), list(observer.seen)))
    assert watched == [(False, [])]  # it is still supervised: joining that thread, and a first count, take their time


def test_what_a_killed_stack_left_is_queued_again_or_cancelled_as_was_requested(home: Path) -> None:
    with EmbeddedStack(Settings.load(home=home), services=()) as stack, Producer(stack.settings) as producer:
        ids = [producer.enqueue(Hook(source=f"Crocks sold out in town {number}.")).id for number in range(4)]
        for job_id in ids[:2]:
            rows(stack.postgres, CLAIM, job_id)
        producer.cancel(ids[1])
        rows(stack.postgres, "UPDATE job SET state = 'dispatched', dispatched_at = now() WHERE id = %s", ids[2])
        jobs = OpenJobs(stack.settings)
        assert (jobs.running(), jobs.count()) == (2, 4)
        assert jobs.requeue() == 2
        assert rows(stack.postgres, "SELECT state, failures, finished_at IS NULL FROM job ORDER BY id") == [
            ("queued", 0, True),
            ("cancelled", 0, False),
            ("queued", 0, True),
            ("queued", 0, True),
        ]
        assert rows(stack.postgres, "SELECT outcome, worker FROM attempt") == [("released", "gone")] * 2
        assert rows(stack.postgres, "SELECT event FROM job_event ORDER BY job_id") == [("released",), ("cancelled",)]
        assert (jobs.requeue(), jobs.cancel(), jobs.count()) == (0, 3, 0)
        jobs.close()
    assert OpenJobs(stack.settings).running() is None  # Postgres is gone: unknown, and no error


def test_a_job_that_kills_the_stack_again_and_again_comes_to_an_end(home: Path) -> None:
    with EmbeddedStack(Settings.load(home=home), services=()) as stack, Producer(stack.settings) as producer:
        job_id = producer.enqueue(Hook(source="Crocks sold out in town.")).id
        jobs, states = OpenJobs(stack.settings), []
        for _ in range(4):
            rows(stack.postgres, CLAIM, job_id)
            assert jobs.requeue_killed(lambda *_: True) == 1
            states += rows(stack.postgres, "SELECT state, engine_deaths, failures, reason FROM job")
        assert states == [
            ("queued", 1, 0, "engine_lost"), ("queued", 2, 0, "engine_lost"), ("queued", 3, 0, "engine_lost"),
            ("dead", 4, 0, "engine_killer"),
        ]  # fmt: skip
        lost = [("lost", "engine_lost")] * 3
        assert rows(stack.postgres, "SELECT outcome, reason FROM attempt ORDER BY attempt") == [
            *lost, ("lost", "engine_killer"),
        ]  # fmt: skip
        assert rows(stack.postgres, "SELECT event, detail FROM job_event ORDER BY at") == [
            *lost, ("dead", "engine_killer"),
        ]  # fmt: skip
        jobs.close()


def test_a_stack_that_was_killed_is_charged_to_what_its_engine_had_begun_with(home: Path) -> None:
    url, session = f"unix://{home}/engine.sock", uuid4()
    with EmbeddedStack(Settings.load(home=home), services=()) as stack, Producer(stack.settings) as producer:
        begun, waited, other = [producer.enqueue(Hook(source=f"Crocks, town {n}.")).id for n in range(3)]
        rows(stack.postgres, CLAIM, begun)
        rows(stack.postgres, CLAIM, waited)
        rows(stack.postgres, CLAIM, other)
        rows(stack.postgres, "UPDATE job SET engine_session_id = %s WHERE id <> %s", session, other)
        rows(stack.postgres, "UPDATE job SET engine_session_id = %s WHERE id = %s", uuid4(), other)
        path = Path(f"{home}/engine.sock.admitted")
        AdmissionFile.create(path, str(session)).writable(CORE).enter(f"7.{begun}.1.0\0" + "1")
        jobs = OpenJobs(stack.settings)
        assert jobs.requeue_killed(partial(had_begun, [url])) == 3
        deaths = dict(rows(stack.postgres, "SELECT id, engine_deaths FROM job"))
        assert deaths == {begun: 1, waited: 0, other: 0}
        ended = {row[0]: row[1:] for row in rows(stack.postgres, "SELECT job_id, outcome, reason FROM attempt")}
        released = ("released", "shutdown")
        assert ended == {begun: ("lost", "engine_lost"), waited: released, other: released}
        jobs.close()


def test_the_jobs_of_a_worker_that_was_killed_run_again_at_once_and_uncharged(home: Path) -> None:
    with (
        NullStack(Settings.load(home=home, lease_seconds=600), latency=NEVER) as stack,
        Producer(stack.settings) as producer,
    ):
        ids = [producer.enqueue(Hook(source=f"Crocks sold out in town {number}.")).id for number in range(3)]

        def at_work() -> bool:
            worker = f"%:{stack.pids()['worker']}:%"
            return rows(stack.postgres, "SELECT count(*) FROM job WHERE worker LIKE %s", worker) == [(len(ids),)]

        for _ in range(2):
            eventually(at_work)
            worker = stack.pids()["worker"]
            assert worker is not None
            os.kill(worker, signal.SIGKILL)
            eventually(lambda killed=worker: stack.pids()["worker"] != killed)
        eventually(at_work)
        assert rows(stack.postgres, "SELECT DISTINCT attempt, failures, engine_deaths FROM job") == [(3, 0, 0)]
        ended = rows(stack.postgres, "SELECT outcome, reason, count(*) FROM attempt GROUP BY 1, 2")
        assert ended == [("lost", "worker_lost", 2 * len(ids))]


def test_what_is_released_of_a_worker_that_died_is_its_own(home: Path) -> None:
    """A job that was to be cancelled is, and whoever waits for it is told; another worker's jobs and messages stay."""
    ours, others = f"{socket.gethostname()}:77:ab", f"{socket.gethostname()}:778:ab"
    with EmbeddedStack(Settings.load(home=home), services=()) as stack, Producer(stack.settings) as producer:
        ids = [producer.enqueue(Hook(source=f"Crocks sold out in town {number}.")).id for number in range(5)]
        for job_id, worker in zip(ids[:3], (ours, ours, others), strict=True):
            rows(stack.postgres, CLAIM, job_id)
            rows(stack.postgres, "UPDATE job SET worker = %s WHERE id = %s", worker, job_id)
        for job_id, engine in zip(ids[3:], ("box-0", "box-1"), strict=True):
            dispatch = "UPDATE job SET state = 'dispatched', dispatched_at = now(), engine_name = %s WHERE id = %s"
            rows(stack.postgres, dispatch, engine, job_id)
        producer.cancel(ids[1])
        jobs = OpenJobs(stack.settings)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(producer.job(ids[1]).result, timeout=PATIENCE)
            assert jobs.release("box-0", 77)
            with pytest.raises(JobCancelledError):
                waiting.result(PATIENCE)
        states = [row[0] for row in rows(stack.postgres, "SELECT state FROM job ORDER BY id")]
        assert states == ["queued", "cancelled", "running", "queued", "dispatched"]
        assert rows(stack.postgres, "SELECT event FROM job_event ORDER BY job_id") == [("lost",), ("cancelled",)]
        assert jobs.release(None, 77)
        assert [row[0] for row in rows(stack.postgres, "SELECT state FROM job ORDER BY id")][-1] == "queued"
        for deaths in (*[0] * (FREE_MACHINE_LOSSES - 1), 1, 2, 3, 4):  # it may well be what takes workers down
            rows(stack.postgres, CLAIM, ids[0])
            rows(stack.postgres, "UPDATE job SET worker = %s WHERE id = %s", ours, ids[0])
            assert jobs.release(None, 77)
            assert rows(stack.postgres, "SELECT engine_deaths FROM job WHERE id = %s", ids[0]) == [(deaths,)]
        assert rows(stack.postgres, "SELECT state, reason, failures FROM job WHERE id = %s", ids[0]) == [
            ("dead", "engine_killer", 0)
        ]
    assert not jobs.release(None, 77)  # Postgres is gone: to be tried again
    jobs.close()


def test_a_machine_that_loses_power_is_charged_to_no_job_and_one_that_it_takes_down_again_and_again_ends(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_jobs, "uptime", lambda: -1.0)  # it was started after every claim
    with EmbeddedStack(Settings.load(home=home), services=()) as stack, Producer(stack.settings) as producer:
        job_id = producer.enqueue(Hook(source="Crocks sold out in town.")).id
        jobs, deaths = OpenJobs(stack.settings), []
        for _ in range(FREE_MACHINE_LOSSES + 4):
            rows(stack.postgres, CLAIM, job_id)
            assert jobs.requeue_killed(lambda *_: True) == 1
            deaths += [row[0] for row in rows(stack.postgres, "SELECT engine_deaths FROM job")]
        assert deaths == [0] * FREE_MACHINE_LOSSES + [1, 2, 3, 4]
        assert rows(stack.postgres, "SELECT state, reason, failures FROM job") == [("dead", "engine_killer", 0)]
        ends = rows(stack.postgres, "SELECT outcome, reason FROM attempt ORDER BY attempt")
        assert ends == [("lost", "machine_lost")] * (FREE_MACHINE_LOSSES + 3) + [("lost", "engine_killer")]
        jobs.close()


def test_the_deadline_is_short_unless_the_settings_say_otherwise(home: Path) -> None:
    for chosen, deadline in (({}, DEADLINE_SECONDS), ({"shutdown_deadline_seconds": 70}, 70)):
        observer = Observer()
        with EmbeddedStack(Settings.load(home=home, **chosen), services=(), observer=observer) as stack:
            assert stack.settings.environment()["THOTHY_SHUTDOWN_DEADLINE_SECONDS"] == str(float(deadline))
        assert observer.seen[0] == StopProgress(Phase.FINISH, 0, seconds_left=deadline)
        assert observer.phases() == [Phase.FINISH, Phase.SERVICES, Phase.SERVERS]
