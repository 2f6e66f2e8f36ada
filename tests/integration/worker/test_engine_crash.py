"""An engine that dies with many jobs handed over: who is charged, and how long the charged ones take to come back."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.queue_bench import Queue, eventually
from tests.support.worker_fleet import WorkerFleet, enqueue, environment, in_engine
from thothy_ai.worker.record.claims import GroupSizes

HANDED_OVER, ROWS, SECONDS = 1024, 768, 1.0
WAITED = "SELECT count(*) FROM attempt WHERE outcome = 'released' AND reason = 'engine_lost_uninvolved'"
RUNNING = "SELECT engine_deaths, count(*) FROM job WHERE state = 'running' GROUP BY 1 ORDER BY 1"
LOST = "SELECT count(*) FROM attempt WHERE outcome = 'lost' AND reason = 'engine_lost'"


@contextmanager
def mortal_engine(queue: Queue, url: str, log: Path) -> Iterator[list[float]]:
    """It is started anew whenever it dies. Yields when it died; for the first time only when it is full."""
    deaths: list[float] = []
    running: list[subprocess.Popen[bytes]] = []
    ending = threading.Event()

    def supervise() -> None:
        while not ending.is_set():
            requests = HANDED_OVER if not deaths else 1
            command = [sys.executable, "-m", "tests.support.mortal_null_engine", url, str(SECONDS if deaths else 600)]
            with (
                log.open("ab") as output,
                subprocess.Popen(
                    [*command, str(ROWS), str(requests)], env=environment(queue.settings), stdout=output, stderr=output
                ) as process,
            ):
                running.append(process)
                process.wait()
            deaths.append(time.monotonic())

    thread = threading.Thread(target=supervise)
    thread.start()
    try:
        yield deaths
    finally:
        ending.set()
        running[-1].kill()
        thread.join()


def test_an_engine_that_is_killed_is_charged_to_what_it_had_admitted(
    queue: Queue, patient_fleet: WorkerFleet, tmp_path: Path
) -> None:
    url = f"unix://{tmp_path}/engine.sock"
    patient_fleet.sharing_worker(url, worker_in_flight=HANDED_OVER, dispatch_min_depth=2 * HANDED_OVER)
    engine = patient_fleet.null_engine(url, 600, rows=ROWS)
    enqueue(queue, HANDED_OVER)
    eventually(lambda: queue.count("running") == HANDED_OVER and in_engine(url) == (ROWS, HANDED_OVER - ROWS))
    engine.kill()
    engine.wait()
    engine = patient_fleet.null_engine(url, 600, rows=ROWS, engine_shutdown_seconds=0.5)
    eventually(lambda: queue.rows(RUNNING) == [(0, HANDED_OVER - ROWS), (1, ROWS // 2)])  # none keeps others waiting
    engine.terminate()
    engine.wait()
    patient_fleet.null_engine(url, 0)
    patient_fleet.drained()
    assert queue.count("succeeded") == HANDED_OVER
    assert queue.rows("SELECT engine_deaths, count(*) FROM job GROUP BY 1 ORDER BY 1") == [
        (0, HANDED_OVER - ROWS),
        (1, ROWS),
    ]
    assert queue.rows(WAITED) == [(HANDED_OVER - ROWS,)]
    assert queue.rows(LOST) == [(ROWS,)]


def test_one_killer_among_a_thousand_is_found_while_the_others_run_in_groups(
    queue: Queue, patient_fleet: WorkerFleet, tmp_path: Path
) -> None:
    """One at a time, the jobs of the first death alone would take `ROWS` times `SECONDS`."""
    url = f"unix://{tmp_path}/engine.sock"
    patient_fleet.sharing_worker(url, worker_in_flight=HANDED_OVER, dispatch_min_depth=2 * HANDED_OVER)
    [killer] = queue.enqueue("kill it")
    enqueue(queue, HANDED_OVER - 1)
    with mortal_engine(queue, url, tmp_path / "engine.log") as deaths:
        eventually(lambda: deaths)
        patient_fleet.drained()
        seconds = time.monotonic() - deaths[0]
    print(f"{seconds:.1f} s from the first death to the end")  # noqa: T201 - what it is about
    job = queue.job(killer)
    assert (job.state, job.reason, job.engine_deaths) == ("dead", "engine_killer", 4), queue.outcomes(killer)
    ended = queue.outcomes(killer)  # released, too, where it was claimed for a session that had just died
    assert [outcome for outcome in ended if outcome != "released"] == ["lost"] * (len(deaths) - 1), ended
    assert queue.count("succeeded") == HANDED_OVER - 1
    [(most, thrice)] = queue.rows(
        "SELECT max(engine_deaths), count(*) FILTER (WHERE engine_deaths = 3) FROM job WHERE state = 'succeeded'"
    )
    assert most <= 3
    assert thrice < GroupSizes.of(ROWS).twice
