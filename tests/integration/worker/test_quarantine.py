"""Jobs that kill the engine: they are found, and other running jobs are affected at most three times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from tests.integration.queue.test_back_pressure import nodes
from tests.support.echo_kind import Echo
from tests.support.fake_engine import FakeClient
from tests.support.mortal_engine import MortalEngine
from tests.support.queue_bench import Queue, eventually, runner_bench
from tests.support.worker_fleet import PATIENT, WorkerFleet, in_engine
from thothy_ai.db.statements import statement
from thothy_ai.engine.api.errors import ConnectionLostError
from thothy_ai.engine.serving.client import connect
from thothy_ai.queue.hints import Hint
from thothy_ai.worker.record.claims import GroupSizes

OTHERS, FRESH, DISPATCHED = 200, 60, 300
UNKNOWN = GroupSizes.of(0)  # the fake engine does not say its capacity
SIZES = GroupSizes.of(64)
REAP = {"retry_base_seconds": 0, "retry_cap_seconds": 0}


def test_a_killer_is_found_and_others_die_with_engines_at_most_three_times(queue: Queue) -> None:
    engine = MortalEngine(in_flight=OTHERS + 1)
    with runner_bench(queue, engine.client()) as first, runner_bench(queue, engine.client()) as second:
        ids = queue.enqueue("kill it")
        ids += [job.id for job in queue.producer.enqueue_many([Echo(text=f"ok {n}") for n in range(OTHERS)])]
        eventually(lambda: share(queue, first, second) or engine.deaths)
        assert len(engine.deaths[0]) == OTHERS + 1
        queue.producer.enqueue_many([Echo(text=f"ok fresh {n}") for n in range(FRESH)])
        eventually(lambda: share(queue, first, second) or not queue.open())
    killer = queue.job(ids[0])
    assert (killer.state, killer.reason, killer.engine_deaths, killer.failures) == ("dead", "engine_killer", 4, 0)
    assert queue.count("succeeded") == OTHERS + FRESH
    [(most, thrice)] = queue.rows(
        "SELECT max(engine_deaths), count(*) FILTER (WHERE engine_deaths = 3) FROM job WHERE state = 'succeeded'"
    )
    assert most <= 3
    assert thrice < UNKNOWN.twice
    _, second_death, _, fourth_death = engine.deaths
    assert len([prompt for prompt in second_death if not prompt.startswith("ok fresh")]) <= UNKNOWN.once
    assert fourth_death == ["kill it"]
    assert "kill it" in engine.alone


def test_a_look_for_quarantined_jobs_reads_each_dispatched_job_once(queue: Queue) -> None:
    """Every worker looks each second, while thousands of jobs are dispatched."""
    queue.producer.enqueue_many([Echo(text=f"ok {n}") for n in range(DISPATCHED)])
    queue.rows("UPDATE job SET state = 'dispatched', dispatch_no = 1, dispatched_at = now()")
    asked = {"ids": [], "dispatch_nos": [], "worker": "w", "lease_seconds": 60}
    asked |= {"engine_session_id": None, "model_name": ""}
    explain = text("EXPLAIN (ANALYZE, FORMAT JSON) " + statement("worker/claim_quarantined").text)
    with queue.engine.connect() as connection:
        [plan] = connection.execute(explain, asked | asdict(SIZES)).scalar_one()
    read = sum(
        node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
        for node in nodes(plan["Plan"])
    )
    assert read < 10 * DISPATCHED


def share(queue: Queue, *benches: object) -> None:
    """Dispatch, and hand over to both in turn."""
    for number, hint in enumerate(queue.dispatch()):
        benches[number % len(benches)].runner.hand_over(hint)


def test_a_job_that_hangs_does_not_let_one_that_waits_to_run_alone_stop_the_queue(queue: Queue) -> None:
    with runner_bench(queue, lease_seconds=1.5, heartbeat_seconds=0.3) as bench:
        [hung] = bench.work("hang on")
        eventually(lambda: queue.job(hung).state == "running")
        [lone] = queue.enqueue("ok alone")
        queue.rows("UPDATE job SET engine_deaths = 3 WHERE id = :id", id=lone)
        bench.hand_over()
        eventually(lambda: queue.job(lone).attempt)  # it may have waited for its lease, and be queued again
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
    queue: Queue, patient_fleet: WorkerFleet, tmp_path: Path
) -> None:
    fleet, url = patient_fleet, f"unix://{tmp_path}/engine.sock"
    engine, client = fleet.null_engine(url, 600), connect(url)  # nothing ends before it is cut
    with runner_bench(queue, client, **PATIENT) as bench:
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
        eventually(lambda: in_engine(url) == (5, 0))  # what it had not begun with would not be charged
        engine.kill()
        fleet.null_engine(url, 0)
        eventually(lambda: queue.rows("SELECT count(*) FROM attempt WHERE reason = 'engine_lost'") == [(5,)])
        eventually(lambda: queue.count("succeeded") == 5)  # the worker looks for quarantined jobs by itself
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
        self.on_lost()
        raise ConnectionLostError("the connection is cut")


def test_a_connection_that_a_job_always_breaks_is_held_against_it(queue: Queue) -> None:
    [job_id] = queue.enqueue("ok")
    queue.rows("UPDATE job SET attempt = 20")
    with runner_bench(queue, Reconnecting()) as bench:
        bench.settle()
    job = queue.job(job_id)
    assert (job.state, job.reason, job.failures, job.engine_deaths) == ("dead", "connection_lost", 3, 0)


def claim_quarantined(
    queue: Queue, hints: Sequence[Hint], session_id: UUID, *, worker: str = "w", lease_seconds: float = 60
) -> list[UUID]:
    """What is claimed for this engine by a worker that has these messages."""
    hinted = {"ids": [hint.job_id for hint in hints], "dispatch_nos": [hint.dispatch_no for hint in hints]}
    claiming = {"worker": worker, "lease_seconds": lease_seconds, "engine_session_id": session_id, "model_name": "m"}
    rows = queue.ask("worker/claim_quarantined", **hinted, **claiming, **asdict(SIZES))
    return [row.id for row in rows if row.attempt is not None]


@pytest.mark.parametrize(("deaths", "size"), [(1, 32), (2, 8)])
def test_quarantined_jobs_run_in_groups_on_each_engine_whoever_has_their_messages(
    queue: Queue, deaths: int, size: int
) -> None:
    """Of an engine that runs 64 sequences at once."""
    queue.producer.enqueue_many([Echo(text=f"ok {number}") for number in range(size + 3)])
    queue.rows("UPDATE job SET engine_deaths = :deaths", deaths=deaths)
    hints, here, elsewhere = queue.dispatch(), uuid4(), uuid4()
    first = claim_quarantined(queue, hints, here)
    assert len(first) == size
    assert claim_quarantined(queue, hints, here, worker="another of this engine") == []
    second = claim_quarantined(queue, [], elsewhere, worker="without a message")
    assert len({*first, *second}) == size + 3
    queue.rows("UPDATE job SET state = 'cancelled', finished_at = now(), worker = NULL, lease_until = NULL")
    [named] = queue.enqueue("ok named")
    hints = queue.dispatch()
    queue.rows("UPDATE job SET engine_deaths = :deaths, model = 'm' WHERE id = :id", id=named, deaths=deaths)
    assert claim_quarantined(queue, [], here) == []  # it may not run on every engine: who has the message knows
    assert claim_quarantined(queue, hints, here) == [named]


def test_those_that_run_alone_come_first_and_nothing_is_claimed_beside_them_on_their_engine(queue: Queue) -> None:
    suspect, *lone = queue.enqueue("ok", *(f"ok {number}" for number in range(SIZES.lone + 1)))
    queue.rows("UPDATE job SET engine_deaths = CASE id WHEN :id THEN 2 ELSE 3 END", id=suspect)
    hints, here, elsewhere = queue.dispatch(), uuid4(), uuid4()
    claimed = claim_quarantined(queue, hints, here)
    assert len(claimed) == SIZES.lone
    assert suspect not in claimed
    assert claim_quarantined(queue, hints, here, worker="another of this engine") == []
    [last] = claim_quarantined(queue, hints, elsewhere, worker="of another engine")
    assert {*claimed, last} == set(lone)


def test_those_charged_twice_come_first_and_then_the_others_beside_the_last_of_them(queue: Queue) -> None:
    once = queue.enqueue(*(f"ok {number}" for number in range(SIZES.once)))
    twice = queue.enqueue(*(f"ok twice {number}" for number in range(SIZES.twice + 1)))
    queue.rows("UPDATE job SET engine_deaths = 1 + CAST(id = ANY(:twice) AS integer)", twice=twice)
    hints, here = queue.dispatch(), uuid4()
    first = claim_quarantined(queue, hints, here)
    assert len(first) == SIZES.twice
    assert {*first} < {*twice}
    assert claim_quarantined(queue, hints, here) == first  # as after a lost answer; one more waits
    queue.rows("UPDATE job SET state = 'cancelled', finished_at = now(), worker = NULL, lease_until = NULL"
               " WHERE id = ANY(:ids)", ids=first[1:])  # fmt: skip
    [last] = {*claim_quarantined(queue, hints, here)} - {*first}
    assert last in twice
    beside = {*claim_quarantined(queue, hints, here)} - {*first, last}
    assert len(beside) == SIZES.once - 2
    assert beside < {*once}


def test_engines_decide_by_themselves_and_workers_of_one_engine_one_after_the_other(queue: Queue) -> None:
    here, elsewhere = uuid4(), uuid4()
    with queue.engine.connect() as holder, holder.begin(), queue.engine.connect() as other:
        lock = statement("worker/quarantine_lock")
        assert holder.execute(lock, {"engine_session_id": here}).one().acquired
        assert not other.execute(lock, {"engine_session_id": here}).one().acquired
        assert other.execute(lock, {"engine_session_id": elsewhere}).one().acquired


def test_a_worker_that_died_with_a_job_that_runs_alone_holds_up_its_engine_for_a_lease(queue: Queue) -> None:
    client = FakeClient()
    [held] = queue.enqueue("ok held")
    queue.rows("UPDATE job SET engine_deaths = 3")
    claimed = claim_quarantined(queue, queue.dispatch(), UUID(client.session_id), worker="gone", lease_seconds=0)
    assert claimed == [held]
    [waiting, fresh] = queue.enqueue("ok waiting", "ok fresh")
    queue.rows("UPDATE job SET engine_deaths = 3 WHERE id = :id", id=waiting)
    with runner_bench(queue, client) as bench:
        bench.hand_over()
        eventually(lambda: Hint(waiting, 1) in bench.done)  # it waits, and takes no place in flight
        since = queue.job(fresh).dispatched_at
        eventually(lambda: queue.job(fresh).dispatched_at > since)
        assert queue.job(waiting).state == "dispatched"
        queue.ask("queue/reap_leases", **REAP)  # the worker is dead, and holds up no other
        bench.settle()
    assert queue.count("succeeded") == 3
    assert queue.job(fresh).attempt == 1


def test_a_worker_that_ends_queues_its_waiting_quarantined_jobs_again(queue: Queue) -> None:
    client = FakeClient()
    [held] = queue.enqueue("ok held")
    queue.rows("UPDATE job SET engine_deaths = 3")
    assert claim_quarantined(queue, queue.dispatch(), UUID(client.session_id), worker="other") == [held]
    [waiting] = queue.enqueue("ok waiting")
    queue.rows("UPDATE job SET engine_deaths = 1 WHERE id = :id", id=waiting)
    with runner_bench(queue, client) as bench:
        bench.hand_over()
        eventually(lambda: bench.done)
    assert (queue.job(waiting).state, queue.job(waiting).attempt) == ("queued", 0)


def test_a_quarantined_job_that_runs_before_its_message_arrives_is_claimed_once(queue: Queue) -> None:
    with runner_bench(queue) as bench:
        ids = queue.enqueue("hang on", "hang on too")
        queue.rows("UPDATE job SET engine_deaths = 1")
        [hint, _] = queue.dispatch()
        eventually(lambda: queue.count("running") == 2)  # the worker looks for quarantined jobs by itself
        bench.runner.hand_over(hint)
        eventually(lambda: bench.done == [hint])
        [later] = queue.enqueue("ok later")
        queue.rows("UPDATE job SET engine_deaths = 1 WHERE id = :id", id=later)
        queue.dispatch()
        eventually(lambda: queue.job(later).state == "succeeded")  # one more claim of quarantined jobs
        assert [queue.job(job_id).attempt for job_id in ids] == [1, 1]


def test_a_quarantined_job_does_not_run_on_an_engine_that_was_started_since_its_claim(queue: Queue) -> None:
    client = FakeClient()
    with runner_bench(queue, client, heartbeat_seconds=600) as bench:
        eventually(lambda: bench.runner._monitor is not None and bench.runner._monitor.is_ready)
        monitor = bench.runner._monitor
        assert monitor is not None
        before, monitor.session_id = monitor.session_id, uuid4()  # the claim names one session
        [job_id] = queue.enqueue("ok")
        queue.rows("UPDATE job SET engine_deaths = 3")
        bench.hand_over()
        eventually(lambda: queue.job(job_id).state == "running")
        monitor.session_id = before  # and the engine is in another when its turn comes
        eventually(lambda: queue.rows("SELECT reason FROM attempt") == [("engine_away",)])
        assert not client.submitted
        bench.settle()
    assert queue.job(job_id).state == "succeeded"
