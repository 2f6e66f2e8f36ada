"""Shutdowns that lose nothing: second signals, rolling restarts, a paused queue, a worker that slept for long."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from redis import Redis
from typer.testing import CliRunner

from tests.support.echo_kind import Echo
from tests.support.fake_engine import FakeClient
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, eventually, runner_bench
from tests.support.worker_fleet import UNACKED, WorkerFleet, check_each_once, enqueue
from thothy_ai.admin.drain import until_idle
from thothy_ai.cli import app
from thothy_ai.queue.control import set_paused
from thothy_ai.queue.status import queue_status


def test_a_second_sigterm_releases_at_once(queue: Queue, patient_fleet: WorkerFleet) -> None:
    fleet = patient_fleet
    [slow] = queue.enqueue("hang on")
    worker = fleet.worker(shutdown_deadline_seconds=100)
    eventually(lambda: queue.job(slow).state == "running")
    worker.terminate()
    eventually(lambda: "Warm shutdown" in fleet.log.read_text())  # Celery has the first; the pool may not know yet
    assert queue.job(slow).state == "running"
    worker.terminate()
    assert worker.wait(PATIENCE) == 0
    assert (queue.outcomes(slow), queue.job(slow).failures) == (["released"], 0)


def test_what_a_worker_gives_back_runs_elsewhere_without_waiting_for_a_lease(queue: Queue, fleet: WorkerFleet) -> None:
    enqueue(queue, 40)
    first = fleet.worker(100, shutdown_deadline_seconds=0.5, lease_seconds=1000, dispatch_timeout_seconds=1000)
    eventually(lambda: queue.count("running") == 16)
    first.terminate()
    assert first.wait(PATIENCE) == 0
    assert queue.count("running") == 0
    with Redis.from_url(queue.settings.require_redis_url()) as redis:
        assert redis.hlen(UNACKED) == 0  # its messages are where other workers find them
    fleet.worker(lease_seconds=1000)
    fleet.drained()
    check_each_once(queue, 40)
    assert queue.rows("SELECT max(failures), max(attempt) FROM job") == [(0, 2)]


def test_a_rolling_restart_costs_no_more_than_the_restarting_worker_s_share(
    queue: Queue, patient_fleet: WorkerFleet, tmp_path: Path
) -> None:
    """The other worker continues: it finishes jobs before the successor has any.

    Nothing waits for a timeout: those of this fleet are longer than `drained` waits.
    """
    fleet, url = patient_fleet, f"unix://{tmp_path}/engine.sock"
    fleet.null_engine(url, 0.2)
    first, _ = (fleet.sharing_worker(url, shutdown_deadline_seconds=100) for _ in range(2))
    eventually(lambda: consumers(queue) == 2)  # otherwise one worker might run all of them
    enqueue(queue, 600)
    eventually(lambda: queue.rows("SELECT count(DISTINCT worker) FROM attempt") == [(2,)])
    first.terminate()
    assert first.wait(PATIENCE) == 0
    [(stopped, known)] = queue.rows("SELECT now(), array_agg(DISTINCT worker) FROM attempt")
    enqueue(queue, 100)  # the others may have ended while the first worker did
    eventually(lambda: queue.rows("SELECT 1 FROM attempt WHERE finished_at > :stopped LIMIT 1", stopped=stopped))
    assert queue.rows("SELECT 1 FROM attempt WHERE worker <> ALL(:known)", known=known) == []
    fleet.sharing_worker(url)
    fleet.drained()
    check_each_once(queue, 700)
    assert queue.rows("SELECT DISTINCT outcome, attempt FROM attempt") == [("succeeded", 1)]
    assert queue.rows("SELECT count(*), count(DISTINCT engine_session_id) FROM attempt") == [(700, 1)]


def consumers(queue: Queue) -> int:
    """Workers that wait for messages: each for ordinary and for urgent ones."""
    with Redis.from_url(queue.settings.require_redis_url()) as redis:
        return sum(client["cmd"] == "brpop" for client in redis.client_list()) // 2


def test_a_queue_that_is_paused_finishes_what_runs_and_admits_nothing(queue: Queue) -> None:
    running, client = queue.enqueue("ok running"), FakeClient()
    client.held = True
    with runner_bench(queue, client) as bench:
        bench.hand_over()
        eventually(lambda: queue.count("running") == 1)
        late = queue.enqueue("ok waiting", "ok too")
        messages = queue.dispatch()
        set_paused(queue.engine, paused=True, note="new image")
        left = until_idle(queue.engine)
        assert next(left) == 1
        client.held = False
        assert list(left)[-1] == 0
        assert queue.job(running[0]).state == "succeeded"
        assert [queue.job(job_id).state for job_id in late] == ["queued"] * 2
        for hint in messages:  # a message that is already on its way is stale
            bench.runner.hand_over(hint)
        eventually(lambda: set(messages) <= set(bench.done))
        assert (queue.dispatch(), queue_status(queue.engine).note) == ([], "new image")
        set_paused(queue.engine, paused=False)
        bench.settle()
    assert queue.rows("SELECT max(attempt) FROM job") == [(1,)]


def test_the_command_says_when_nothing_runs_and_when_something_still_does(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THOTHY_DATABASE_URL", queue.settings.require_database_url())
    [held] = queue.enqueue("ok")
    queue.dispatch()
    unnamed = {"engine_session_id": None, "model_name": ""}
    queue.ask("worker/claim", ids=[held], dispatch_nos=[1], worker="slow", lease_seconds=60, **unnamed)
    [waiting] = queue.enqueue("ok waiting")
    late = CliRunner().invoke(app, ["queue", "pause", "--wait", "--timeout", "0"])
    assert (late.exit_code, late.stderr) == (1, "thothy: 1 job is still running after 0 s; the queue stays paused\n")
    queue.rows("UPDATE job SET state = 'queued', worker = NULL, lease_until = NULL WHERE id = :id", id=held)
    done = CliRunner().invoke(app, ["queue", "pause", "--wait"])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1].startswith("No job is running, and 2 jobs wait.")
    assert (queue.dispatch(), queue.job(waiting).state) == ([], "queued")


def test_a_timeout_without_waiting_is_a_usage_error() -> None:
    done = CliRunner().invoke(app, ["queue", "pause", "--timeout", "5"])
    assert done.exit_code == 2
    assert "--timeout needs --wait" in done.stderr


def test_a_worker_that_slept_through_its_lease_is_fenced_and_works_on(queue: Queue, fleet: WorkerFleet) -> None:
    ids = [job.id for job in queue.producer.enqueue_many([Echo(text=f"hang {number}") for number in range(8)])]
    zombie = fleet.worker()
    eventually(lambda: queue.count("running") == 8)
    zombie.send_signal(signal.SIGSTOP)
    eventually(lambda: queue.rows("SELECT count(*) FROM attempt WHERE outcome = 'lost'") == [(8,)])
    queue.rows("UPDATE job_request SET request = jsonb_set(request, '{text}', '\"ok now\"')")
    other = fleet.worker(lease_seconds=1000)
    fleet.drained()
    other.terminate()
    assert other.wait(PATIENCE) == 0
    zombie.send_signal(signal.SIGCONT)
    ids += queue.enqueue("ok after")  # only the zombie is left to run it
    fleet.drained()
    zombie.terminate()
    assert zombie.wait(PATIENCE) == 0
    check_each_once(queue, 9)
    assert [queue.outcomes(job_id) for job_id in ids] == [["lost", "succeeded"]] * 8 + [["succeeded"]]


def test_a_cancelled_job_stops_long_before_the_next_heartbeat(queue: Queue) -> None:
    with runner_bench(queue, heartbeat_seconds=300, lease_seconds=1000, dispatch_timeout_seconds=1000) as bench:
        [job_id] = bench.work("hang on")
        eventually(lambda: queue.job(job_id).state == "running")
        assert queue.producer.cancel(job_id)
        eventually(lambda: queue.job(job_id).state == "cancelled")
