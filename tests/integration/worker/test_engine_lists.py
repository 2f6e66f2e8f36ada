"""Workers beside their engines: each takes its engine's jobs; an engine that stops or is lost leaves them to others."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.support.echo_kind import Echo
from tests.support.queue_bench import Queue, eventually
from tests.support.worker_fleet import WorkerFleet, check_each_once
from thothy_ai.chaos.rig import children, send
from thothy_ai.producer import EnqueueOptions


class Pair(NamedTuple):
    """An engine and the worker beside it."""

    engine: subprocess.Popen[bytes]
    worker: subprocess.Popen[bytes]


def start_pair(fleet: WorkerFleet, folder: Path, name: str, seconds: float = 0.0) -> Pair:
    url = f"unix://{folder}/{name}.sock"
    engine = fleet.null_engine(url, seconds, engine_name=name, model_name=f"model-{name}")
    return Pair(engine, fleet.sharing_worker(url))


def wait_ready(queue: Queue, engines: int) -> None:
    ready = "SELECT count(*) FROM engine_session WHERE state = 'ready'"
    eventually(lambda: queue.rows(ready) == [(engines,)])


def ran_on(queue: Queue) -> list[tuple[str | None, str]]:
    """The model that each job named, and the engine that its accepted attempt ran on."""
    rows = queue.rows(
        "SELECT job.model, engine_session.engine_name FROM attempt JOIN job ON job.id = job_id"
        " JOIN engine_session ON engine_session.id = attempt.engine_session_id WHERE outcome = 'succeeded'"
    )
    return [tuple(row) for row in rows]


def test_each_job_runs_on_an_engine_of_its_model(queue: Queue, fleet: WorkerFleet, tmp_path: Path) -> None:
    for name in ("a", "b"):
        start_pair(fleet, tmp_path, name)
    wait_ready(queue, 2)
    models = [None, "model-a", "model-b"] * 20
    queue.producer.enqueue_many([(Echo(text=f"ok {n}"), EnqueueOptions(model=each)) for n, each in enumerate(models)])
    fleet.drained()
    check_each_once(queue, 60)
    found = Counter(ran_on(queue))
    assert (found["model-a", "a"], found["model-b", "b"]) == (20, 20)
    assert found[None, "a"] + found[None, "b"] == 20
    named = queue.rows("SELECT DISTINCT provenance ->> 'model' FROM artifact")
    assert named == [("null",)]


def test_an_engine_that_stops_leaves_its_jobs_to_another(
    queue: Queue, patient_fleet: WorkerFleet, tmp_path: Path
) -> None:
    """Its worker gives back what waits, and the reaper what is left: nothing waits for a lease, no attempt counts."""
    fleet = patient_fleet
    a = start_pair(fleet, tmp_path, "a", seconds=2)  # it has work for a minute, so that there is some for the other
    wait_ready(queue, 1)
    queue.producer.enqueue_many([Echo(text=f"ok {n}") for n in range(500)])
    eventually(lambda: queue.count("succeeded"))
    start_pair(fleet, tmp_path, "b", seconds=0.01)
    wait_ready(queue, 2)
    a.engine.terminate()
    fleet.drained()
    check_each_once(queue, 500)
    assert queue.rows("SELECT max(failures) FROM job") == [(0,)]
    assert {name for _, name in ran_on(queue)} == {"a", "b"}


def test_the_jobs_of_a_lost_machine_run_on_another_before_their_leases_expire(
    queue: Queue, patient_fleet: WorkerFleet, tmp_path: Path
) -> None:
    """Those that ran, and those that waited for it: leases and dispatches last longer than `drained` waits."""
    fleet = patient_fleet
    a = start_pair(fleet, tmp_path, "a", seconds=1000)
    wait_ready(queue, 1)
    queue.producer.enqueue_many([Echo(text=f"ok {n}") for n in range(60)])
    eventually(lambda: queue.count("running") == 16 and queue.count("dispatched") > 16)
    for process in (a.engine, a.worker):  # nobody can say that another ended
        process.send_signal(signal.SIGSTOP)
        for child in children(process.pid):
            send(child, signal.SIGKILL)
        process.kill()
    start_pair(fleet, tmp_path, "b")
    fleet.drained()
    check_each_once(queue, 60)
    assert queue.rows("SELECT max(failures), max(engine_deaths) FROM job") == [(0, 0)]
    assert queue.rows("SELECT outcome, reason, count(*) FROM attempt GROUP BY 1, 2 ORDER BY 1") == [
        ("lost", "machine_lost", 16),
        ("succeeded", None, 60),
    ]


def test_an_engine_whose_worker_is_killed_leaves_what_waits_for_it_to_another(
    queue: Queue, patient_fleet: WorkerFleet, tmp_path: Path
) -> None:
    """Dispatches last longer than `drained` waits. A worker that comes back gets jobs again."""
    fleet = patient_fleet
    a = start_pair(fleet, tmp_path, "a")
    wait_ready(queue, 1)
    queue.producer.enqueue_many([Echo(text="ok first")])
    fleet.drained()
    for child in children(a.worker.pid):
        send(child, signal.SIGKILL)
    a.worker.kill()
    queue.producer.enqueue_many([Echo(text=f"ok {n}") for n in range(60)])
    eventually(lambda: queue.count("dispatched") == 60)
    start_pair(fleet, tmp_path, "b")
    fleet.drained()
    check_each_once(queue, 61)
    assert Counter(name for _, name in ran_on(queue)) == {"a": 1, "b": 60}
    assert queue.rows("SELECT max(failures) FROM job") == [(0,)]
    fleet.sharing_worker(f"unix://{tmp_path}/a.sock")
    queue.producer.enqueue_many([(Echo(text="ok last"), EnqueueOptions(model="model-a"))])
    fleet.drained()
    assert ("model-a", "a") in ran_on(queue)
