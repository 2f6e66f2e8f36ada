"""A drain by real processes: the dispatcher's process forecasts it, records that, and learns what came."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.echo_kind import Echo
from tests.support.home import THOTHY
from tests.support.queue_bench import Queue, eventually
from tests.support.worker_fleet import WorkerFleet
from thothy_ai.queue.forecast.outlook import Basis
from thothy_ai.queue.forecast.store import asking, current, past_accuracy, read_kept

JOBS, IN_FLIGHT, SECONDS = 400, 8, 0.8  # 40 s: more than the forecaster waits between two looks, on a slow machine too


def test_a_drain_is_forecast_and_compared(queue: Queue, patient_fleet: WorkerFleet, tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/engine.sock"
    patient_fleet.null_engine(url, SECONDS)
    patient_fleet.sharing_worker(url, worker_in_flight=IN_FLIGHT)
    patient_fleet.process([*THOTHY, "dispatcher"])  # stands by as a dispatcher, and makes the forecasts
    eventually(lambda: queue.rows("SELECT FROM forecast_state"))
    queue.producer.enqueue_many([Echo(text=str(number)) for number in range(JOBS)])  # none arrives later
    eventually(lambda: current(queue.engine).basis is Basis.LEARNT or queue.rows("SELECT FROM forecast"))
    patient_fleet.drained()
    eventually(lambda: not queue.rows("SELECT FROM forecast WHERE ended_at IS NULL"))
    [(last,)] = queue.rows("SELECT max(finished_at) FROM job")
    recorded = queue.rows("SELECT * FROM forecast")
    assert recorded
    assert {row.ended_at for row in recorded} == {last}
    assert past_accuracy(queue.engine).disturbed == 0
    with queue.engine.connect() as connection:
        kept = read_kept(asking(connection))
    assert kept is not None
    [sums] = [sums for key, sums in kept.history.long.items() if not key.model]
    assert sums.finished > JOBS * 0.05  # weighted by how full the engine was
    assert sums.finished == pytest.approx(sums.attempts, rel=0.05)  # some are committed between the two readings
