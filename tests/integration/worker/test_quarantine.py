"""Jobs that kill the engine: found, and their neighbours pay for it once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.crowd import Crowd
from tests.support.echo_kind import Echo
from tests.support.fake_engine import FakeClient
from tests.support.mortal_engine import MortalEngine
from tests.support.queue_bench import Queue, crew, eventually
from thothy_ai.engine.client import connect
from thothy_ai.engine.errors import EngineLostError
from thothy_ai.queue.hints import Hint

NEIGHBOURS, FRESH = 200, 60
REAP = {"retry_base_seconds": 0, "retry_cap_seconds": 0}


def test_a_killer_is_found_and_its_neighbours_have_one_extra_attempt_at_most(queue: Queue) -> None:
    engine = MortalEngine(crowd=NEIGHBOURS + 1)
    with crew(queue, engine.client()) as first, crew(queue, engine.client()) as second:
        ids = queue.enqueue("kill it")
        ids += [job.id for job in queue.producer.enqueue_many([Echo(text=f"ok {n}") for n in range(NEIGHBOURS)])]
        eventually(lambda: share(queue, first, second) or engine.deaths)
        assert len(engine.deaths[0]) == NEIGHBOURS + 1
        queue.producer.enqueue_many([Echo(text=f"ok fresh {n}") for n in range(FRESH)])
        eventually(lambda: share(queue, first, second) or not queue.open(), 40)
    killer = queue.job(ids[0])
    assert (killer.state, killer.reason, killer.attempt, killer.failures) == ("dead", "engine_killer", 3, 0)
    assert queue.count("succeeded") == NEIGHBOURS + FRESH
    assert queue.rows("SELECT max(attempt) FROM job WHERE state = 'succeeded'") == [(2,)]
    _, second_death, third_death = engine.deaths
    assert [prompt for prompt in second_death if not prompt.startswith("ok fresh")] == ["kill it"]
    assert third_death == ["kill it"]
    assert "kill it" in engine.alone


def share(queue: Queue, *teams: object) -> None:
    """Dispatch, and hand over to both in turn."""
    for number, hint in enumerate(queue.dispatch()):
        teams[number % len(teams)].foreman.hand_over(hint)


def test_a_neighbour_that_hangs_does_not_let_a_lone_suspect_stop_the_queue(queue: Queue) -> None:
    with crew(queue, lease_seconds=1.5, heartbeat_seconds=0.3) as team:
        [hung] = team.work("hang on")
        eventually(lambda: queue.job(hung).state == "running")
        [lone] = queue.enqueue("ok alone")
        queue.rows("UPDATE job SET engine_deaths = 2 WHERE id = :id", id=lone)
        team.hand_over()
        eventually(lambda: queue.job(lone).state == "running")
        [barred] = team.work("ok barred")
        eventually(lambda: queue.job(barred).state == "succeeded")
        assert queue.job(hung).state == "running"
        assert queue.rows("SELECT reason, failures FROM job WHERE id = :id", id=lone) == [("not_alone", 0)]


def test_a_lost_connection_to_a_living_engine_is_no_death(queue: Queue) -> None:
    client = Reconnecting()
    with crew(queue, client) as team:
        [job_id] = team.work("cut off")
        eventually(lambda: queue.outcomes(job_id) == ["released"])
        client.whole = True
        team.settle()
    job = queue.job(job_id)
    assert (job.state, job.engine_deaths, job.failures) == ("dead", 0, 3)  # for what it says, once it is heard
    assert queue.events(job_id)[0] == "released"


def test_a_killed_engine_process_is_a_death_and_a_cut_line_to_it_is_none(
    queue: Queue, crowd: Crowd, tmp_path: Path
) -> None:
    url = f"unix://{tmp_path}/engine.sock"
    engine, client = crowd.null_engine(url, 1), connect(url)
    with crew(queue, client) as team:
        ids = queue.enqueue(
            *(f"ok {number}" for number in range(5))
        )  # the crowd's dispatcher needs a worker to hand to
        eventually(lambda: queue.count("dispatched") == 5)
        for job_id in ids:
            team.foreman.hand_over(Hint(job_id, 1))
        eventually(lambda: len(client._generations.open_ids) == 5)
        team.foreman._loop.call_soon_threadsafe(client._writer.transport.abort)
        eventually(lambda: queue.rows("SELECT outcome, reason FROM attempt") == [("released", "connection_lost")] * 5)
        assert queue.rows("SELECT DISTINCT engine_deaths FROM job") == [(0,)]
        eventually(lambda: queue.count("dispatched") == 5)
        for job_id in ids:
            team.foreman.hand_over(Hint(job_id, 2))
        eventually(lambda: len(client._generations.open_ids) == 5)
        engine.kill()
        crowd.null_engine(url, 0)
        eventually(lambda: queue.rows("SELECT count(*) FROM attempt WHERE reason = 'engine_lost'") == [(5,)])
        eventually(lambda: queue.count("dispatched") == 5)
        for job_id in ids:
            team.foreman.hand_over(Hint(job_id, 3))
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
        raise EngineLostError("the line is cut")


def test_a_connection_that_a_job_always_breaks_is_held_against_it(queue: Queue) -> None:
    [job_id] = queue.enqueue("ok")
    queue.rows("UPDATE job SET attempt = 20")
    with crew(queue, Reconnecting()) as team:
        team.settle()
    job = queue.job(job_id)
    assert (job.state, job.reason, job.failures, job.engine_deaths) == ("dead", "connection_lost", 3, 0)


@pytest.mark.parametrize("deaths", [1, 2])
def test_suspects_wait_for_each_other_across_workers_and_not_for_a_dead_worker(queue: Queue, deaths: int) -> None:
    held, waiting = queue.enqueue("ok held", "ok waiting")
    queue.rows("UPDATE job SET engine_deaths = :deaths", deaths=deaths)
    queue.dispatch()
    queue.ask("claim_suspect", ids=[held], dispatch_nos=[1], worker="gone", lease_seconds=0, engine_session_id=None)
    [fresh] = queue.enqueue("ok fresh")
    with crew(queue) as team:
        team.foreman.hand_over(Hint(waiting, 1))
        team.hand_over()
        eventually(lambda: Hint(waiting, 1) in team.done)  # it is in line, and fills no place
        if deaths == 1:  # beside a suspect fresh jobs run, beside a job that runs alone they do not
            eventually(lambda: queue.job(fresh).state == "succeeded")
        else:
            since = queue.job(fresh).dispatched_at
            eventually(lambda: queue.job(fresh).dispatched_at > since)
        assert queue.job(waiting).state == "dispatched"
        queue.ask("reap_leases", **REAP)  # the worker is dead, and holds nobody up any longer
        team.settle()
    assert queue.count("succeeded") == 3
    assert queue.rows("SELECT max(attempt) FROM job WHERE id <> :held", held=held) == [(1,)]


def test_two_workers_cannot_take_a_suspect_each(queue: Queue) -> None:
    ids = queue.enqueue("ok 1", "ok 2")
    queue.rows("UPDATE job SET engine_deaths = 1")
    hints = queue.dispatch()
    taken = [
        row.attempt
        for worker, hint in zip("ab", hints, strict=True)
        for row in queue.ask(
            "claim_suspect",
            ids=[hint.job_id],
            dispatch_nos=[hint.dispatch_no],
            worker=worker,
            lease_seconds=9,
            engine_session_id=None,
        )
    ]
    assert taken == [1, None]
    assert sorted(queue.job(job_id).state for job_id in ids) == ["dispatched", "running"]


def test_a_worker_that_ends_queues_the_suspects_in_its_line_again(queue: Queue) -> None:
    held, waiting = queue.enqueue("ok held", "ok waiting")
    queue.rows("UPDATE job SET engine_deaths = 1")
    queue.dispatch()
    queue.ask("claim_suspect", ids=[held], dispatch_nos=[1], worker="other", lease_seconds=60, engine_session_id=None)
    with crew(queue) as team:
        team.foreman.hand_over(Hint(waiting, 1))
        eventually(lambda: team.done)
    assert (queue.job(waiting).state, queue.job(waiting).attempt) == ("queued", 0)
