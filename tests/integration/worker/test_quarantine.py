"""Jobs that kill the engine: they are found, and other running jobs are affected once."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from tests.support.echo_kind import Echo
from tests.support.fake_engine import FakeClient
from tests.support.mortal_engine import MortalEngine
from tests.support.queue_bench import Queue, eventually, runner_bench
from tests.support.worker_fleet import WorkerFleet
from thothy_ai.engine.client import connect
from thothy_ai.engine.errors import ConnectionLostError
from thothy_ai.queue.hints import Hint

OTHERS, FRESH = 200, 60
REAP = {"retry_base_seconds": 0, "retry_cap_seconds": 0}


def test_a_killer_is_found_and_others_have_at_most_one_extra_attempt(queue: Queue) -> None:
    engine = MortalEngine(in_flight=OTHERS + 1)
    with runner_bench(queue, engine.client()) as first, runner_bench(queue, engine.client()) as second:
        ids = queue.enqueue("kill it")
        ids += [job.id for job in queue.producer.enqueue_many([Echo(text=f"ok {n}") for n in range(OTHERS)])]
        eventually(lambda: share(queue, first, second) or engine.deaths)
        assert len(engine.deaths[0]) == OTHERS + 1
        queue.producer.enqueue_many([Echo(text=f"ok fresh {n}") for n in range(FRESH)])
        eventually(lambda: share(queue, first, second) or not queue.open(), 40)
    killer = queue.job(ids[0])
    assert (killer.state, killer.reason, killer.attempt, killer.failures) == ("dead", "engine_killer", 3, 0)
    assert queue.count("succeeded") == OTHERS + FRESH
    assert queue.rows("SELECT max(attempt) FROM job WHERE state = 'succeeded'") == [(2,)]
    _, second_death, third_death = engine.deaths
    assert [prompt for prompt in second_death if not prompt.startswith("ok fresh")] == ["kill it"]
    assert third_death == ["kill it"]
    assert "kill it" in engine.alone


def share(queue: Queue, *benches: object) -> None:
    """Dispatch, and hand over to both in turn."""
    for number, hint in enumerate(queue.dispatch()):
        benches[number % len(benches)].runner.hand_over(hint)


def test_a_job_that_hangs_does_not_let_one_that_waits_to_run_alone_stop_the_queue(queue: Queue) -> None:
    with runner_bench(queue, lease_seconds=1.5, heartbeat_seconds=0.3) as bench:
        [hung] = bench.work("hang on")
        eventually(lambda: queue.job(hung).state == "running")
        [lone] = queue.enqueue("ok alone")
        queue.rows("UPDATE job SET engine_deaths = 2 WHERE id = :id", id=lone)
        bench.hand_over()
        eventually(lambda: queue.job(lone).state == "running")
        [blocked] = bench.work("ok blocked")
        eventually(lambda: queue.job(blocked).state == "succeeded")
        assert queue.job(hung).state == "running"
        assert queue.rows("SELECT reason, failures FROM job WHERE id = :id", id=lone) == [("not_alone", 0)]


def test_a_lost_connection_to_a_living_engine_is_no_death(queue: Queue) -> None:
    client = Reconnecting()
    with runner_bench(queue, client) as bench:
        [job_id] = bench.work("cut off")
        eventually(lambda: queue.outcomes(job_id) == ["released"])
        client.whole = True
        bench.settle()
    job = queue.job(job_id)
    assert (job.state, job.engine_deaths, job.failures) == ("dead", 0, 3)  # for its output, once it arrives
    assert queue.events(job_id)[0] == "released"


def test_a_killed_engine_process_is_a_death_and_a_cut_line_to_it_is_none(
    queue: Queue, fleet: WorkerFleet, tmp_path: Path
) -> None:
    url = f"unix://{tmp_path}/engine.sock"
    engine, client = fleet.null_engine(url, 600), connect(url)  # nothing ends before it is cut
    with runner_bench(queue, client) as bench:
        ids = queue.enqueue(
            *(f"ok {number}" for number in range(5))
        )  # the fleet's dispatcher needs a worker to hand to
        eventually(lambda: queue.count("dispatched") == 5)
        for job_id in ids:
            bench.runner.hand_over(Hint(job_id, 1))
        eventually(lambda: len(client._generations.open_ids) == 5)
        bench.runner._loop.call_soon_threadsafe(client._writer.transport.abort)
        eventually(lambda: queue.rows("SELECT outcome, reason FROM attempt") == [("released", "connection_lost")] * 5)
        assert queue.rows("SELECT DISTINCT engine_deaths FROM job") == [(0,)]
        eventually(lambda: queue.count("dispatched") == 5)
        for job_id in ids:
            bench.runner.hand_over(Hint(job_id, 2))
        eventually(lambda: len(client._generations.open_ids) == 5)
        engine.kill()
        fleet.null_engine(url, 0)
        eventually(lambda: queue.rows("SELECT count(*) FROM attempt WHERE reason = 'engine_lost'") == [(5,)])
        eventually(lambda: queue.count("dispatched") == 5)
        for job_id in ids:
            bench.runner.hand_over(Hint(job_id, 3))
        eventually(lambda: queue.count("succeeded") == 5)
    assert queue.rows("SELECT DISTINCT engine_deaths, failures, attempt FROM job") == [(1, 0, 3)]


class Reconnecting(FakeClient):
    """Its connection breaks under the first request; its engine lives on."""

    whole = False

    async def submit(self, request: object) -> object:
        generation = await super().submit(request)
        if not self.whole:
            generation.result = self._cut
        return generation

    async def _cut(self) -> None:
        raise ConnectionLostError("the connection is cut")


def test_a_connection_that_a_job_always_breaks_is_held_against_it(queue: Queue) -> None:
    [job_id] = queue.enqueue("ok")
    queue.rows("UPDATE job SET attempt = 20")
    with runner_bench(queue, Reconnecting()) as bench:
        bench.settle()
    job = queue.job(job_id)
    assert (job.state, job.reason, job.failures, job.engine_deaths) == ("dead", "connection_lost", 3, 0)


def claim_quarantined(queue: Queue, job_id: UUID, worker: str, lease_seconds: float) -> None:
    claim = {"ids": [job_id], "dispatch_nos": [1], "worker": worker, "lease_seconds": lease_seconds}
    queue.ask("worker/claim_quarantined", **claim, engine_session_id=None)


@pytest.mark.parametrize("deaths", [1, 2])
def test_quarantined_jobs_wait_for_each_other_across_workers_and_not_for_a_dead_worker(
    queue: Queue, deaths: int
) -> None:
    held, waiting = queue.enqueue("ok held", "ok waiting")
    queue.rows("UPDATE job SET engine_deaths = :deaths", deaths=deaths)
    queue.dispatch()
    queue.ask(
        "worker/claim_quarantined", ids=[held], dispatch_nos=[1], worker="gone", lease_seconds=0, engine_session_id=None
    )
    [fresh] = queue.enqueue("ok fresh")
    with runner_bench(queue) as bench:
        bench.runner.hand_over(Hint(waiting, 1))
        bench.hand_over()
        eventually(lambda: Hint(waiting, 1) in bench.done)  # it waits, and takes no place in flight
        if deaths == 1:  # fresh jobs run beside a quarantined one, but not beside one that runs alone
            eventually(lambda: queue.job(fresh).state == "succeeded")
        else:
            since = queue.job(fresh).dispatched_at
            eventually(lambda: queue.job(fresh).dispatched_at > since)
        assert queue.job(waiting).state == "dispatched"
        queue.ask("queue/reap_leases", **REAP)  # the worker is dead, and holds up no other
        bench.settle()
    assert queue.count("succeeded") == 3
    assert queue.rows("SELECT max(attempt) FROM job WHERE id <> :held", held=held) == [(1,)]


def test_two_workers_cannot_claim_a_quarantined_job_each(queue: Queue) -> None:
    ids = queue.enqueue("ok 1", "ok 2")
    queue.rows("UPDATE job SET engine_deaths = 1")
    hints = queue.dispatch()
    taken = [
        row.attempt
        for worker, hint in zip("ab", hints, strict=True)
        for row in queue.ask(
            "worker/claim_quarantined",
            ids=[hint.job_id],
            dispatch_nos=[hint.dispatch_no],
            worker=worker,
            lease_seconds=9,
            engine_session_id=None,
        )
    ]
    assert taken == [1, None]
    assert sorted(queue.job(job_id).state for job_id in ids) == ["dispatched", "running"]


def test_a_worker_that_ends_queues_its_waiting_quarantined_jobs_again(queue: Queue) -> None:
    held, waiting = queue.enqueue("ok held", "ok waiting")
    queue.rows("UPDATE job SET engine_deaths = 1")
    queue.dispatch()
    queue.ask(
        "worker/claim_quarantined",
        ids=[held],
        dispatch_nos=[1],
        worker="other",
        lease_seconds=60,
        engine_session_id=None,
    )
    with runner_bench(queue) as bench:
        bench.runner.hand_over(Hint(waiting, 1))
        eventually(lambda: bench.done)
    assert (queue.job(waiting).state, queue.job(waiting).attempt) == ("queued", 0)
