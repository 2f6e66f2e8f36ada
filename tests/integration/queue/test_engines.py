"""Several engines: which list a job goes to, what waits for a missing model, and where a lost engine's jobs go."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from redis import Redis
from sqlalchemy import text

from tests.support.echo_kind import Echo
from tests.support.engine_rows import fall_silent, register
from tests.support.queue_bench import Queue, eventually, running
from thothy_ai.admin.model_aliases import list_aliases, remove_alias, set_alias
from thothy_ai.db.fragments import ENGINE_SILENCE_SECONDS, FREE_MACHINE_LOSSES
from thothy_ai.db.statements import statement
from thothy_ai.errors import InvalidJobError
from thothy_ai.producer import EnqueueOptions
from thothy_ai.queue.broker import Broker
from thothy_ai.queue.collector import OTHER_MODELS, QueueCollector
from thothy_ai.queue.dispatcher import Dispatcher
from thothy_ai.queue.dispatches import Dispatches, worker_silence
from thothy_ai.queue.hints import Hint, ListLengths, parse_task_id
from thothy_ai.queue.reaper import Reaper
from thothy_ai.queue.status import MAX_MODELS, queue_status

A, B = "thothy:jobs@a", "thothy:jobs@b"
LEASE = 6000  # seconds, as everything that is compared here: some pass between a statement and the next
LOST = {"lease_seconds": LEASE, "worker_seconds": 1500}


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(redis_url) as client:
        yield client


def listed(redis: Redis, key: str) -> list[Hint | None]:
    """Hints in the order in which workers get them."""
    return [parse_task_id(json.loads(element)["headers"]["id"]) for element in reversed(redis.lrange(key, 0, -1))]


def engines_of(queue: Queue) -> dict[UUID, str | None]:
    return {row.id: row.engine_name for row in queue.rows("SELECT id, engine_name FROM job WHERE state = 'dispatched'")}


def start(queue: Queue, job_id: UUID, session: UUID, *, beat: float = 0.0, **changes: object) -> None:
    """Run it in this session; its worker's last heartbeat was `beat` seconds ago."""
    queue.rows(
        "UPDATE job SET state = 'running', attempt = attempt + 1, worker = 'w', started_at = now(),"
        " engine_session_id = :session, lease_until = now() + make_interval(secs => :left) WHERE id = :id",
        id=job_id,
        session=session,
        left=LEASE - beat,
    )
    for name, value in changes.items():
        queue.rows(f"UPDATE job SET {name} = :value WHERE id = :id", id=job_id, value=value)


def test_jobs_go_to_the_lists_of_the_engines_that_serve_them(queue: Queue, redis: Redis) -> None:
    register(queue, "a", "small")
    register(queue, "b", "large")
    [small] = queue.enqueue("ok", model="small")
    [large] = queue.enqueue("ok", model="large", priority=3)
    with running(Dispatcher(queue.settings)):
        eventually(lambda: redis.llen(A) and redis.llen(B))
    assert (listed(redis, A), listed(redis, B)) == ([Hint(small, 1)], [Hint(large, 1)])
    assert engines_of(queue) == {small: "a", large: "b"}
    assert redis.smembers("thothy:engines") == {b"a", b"b"}


def test_siblings_stay_together_after_the_dispatcher_changes(queue: Queue) -> None:
    register(queue, "a")
    register(queue, "b")
    queue.producer.enqueue_many([Echo(text=f"ok {n % 4}") for n in range(16)])
    first = {hint.job_id for each in queue.dispatches() for hint in each.hints}
    homes = {row.source_key: row.engine_name for row in queue.rows("SELECT DISTINCT source_key, engine_name FROM job")}
    assert len(homes) == 4
    assert Counter(homes.values()) == {"a": 2, "b": 2}
    queue.producer.enqueue_many([Echo(text=f"ok {n % 4}") for n in range(16)])
    other = Dispatches(queue.settings, queue.ask)
    other.recall_sources()
    engines = other.engines()
    made = list(other.dispatch(engines, {"a": ListLengths(8, 0), "b": ListLengths(8, 0)}, 16))
    assert {hint.job_id for each in made for hint in each.hints}.isdisjoint(first)
    sources = {(row.source_key, row.engine_name) for row in queue.rows("SELECT source_key, engine_name FROM job")}
    assert sources == set(homes.items())


def test_a_job_for_a_missing_model_waits_and_holds_up_none(queue: Queue) -> None:
    register(queue, "a", "small")
    queue.producer.enqueue_many([(Echo(text="ok"), EnqueueOptions(model="huge", priority=9)) for _ in range(200)])
    [behind] = queue.enqueue("ok")
    assert [hint.job_id for hint in queue.dispatch()] == [behind]
    assert queue_status(queue.engine).unserved == {"huge": 200}


def test_a_thousand_names_that_nobody_serves_make_no_thousand_series(queue: Queue) -> None:
    queue.producer.enqueue_many([(Echo(text="ok"), EnqueueOptions(model=f"m{n:03}")) for n in range(300)])
    status = queue_status(queue.engine)
    assert list(status.unserved) == [f"m{n:03}" for n in range(MAX_MODELS)]
    assert set(status.unserved.values()) == {1}
    assert status.unserved_others == 100
    collector = QueueCollector(queue.engine)
    collector.read()
    [family] = [each for each in collector.collect() if each.name == "thothy_queue_unserved_jobs"]
    assert len(family.samples) == MAX_MODELS + 1
    assert (family.samples[-1].labels, family.samples[-1].value) == ({"model": OTHER_MODELS}, 100)
    with pytest.raises(InvalidJobError):
        queue.enqueue("ok", model=OTHER_MODELS)


def test_jobs_of_later_names_that_an_engine_serves_do_not_wait_for_one(queue: Queue) -> None:
    names = [f"m{n:03}" for n in range(MAX_MODELS + 5)]
    queue.producer.enqueue_many([(Echo(text="ok"), EnqueueOptions(model=name)) for name in names[:MAX_MODELS]])
    assert queue_status(queue.engine).unserved_others == 0
    queue.producer.enqueue_many([(Echo(text="ok"), EnqueueOptions(model=name)) for name in names[MAX_MODELS:] * 2])
    assert queue_status(queue.engine).unserved_others == 10
    register(queue, "a", names[-1])
    register(queue, "b", names[-2])
    assert queue_status(queue.engine).unserved_others == 6
    set_alias(queue.engine, names[-3], names[-1])
    assert queue_status(queue.engine).unserved_others == 4
    set_alias(queue.engine, names[-2], "huge")  # whose jobs do not run on the model of that name
    assert queue_status(queue.engine).unserved_others == 6


def test_an_alias_is_resolved_when_a_job_is_dispatched(queue: Queue) -> None:
    register(queue, "a", "small")
    register(queue, "b", "large")
    assert set_alias(queue.engine, "house", "small") is None
    first = queue.enqueue("ok", "ok", model="house")
    queue.dispatch()
    assert set(engines_of(queue).values()) == {"a"}
    assert set_alias(queue.engine, "house", "large") == "small"
    [later] = queue.enqueue("ok", model="house")
    queue.dispatch()
    assert engines_of(queue) == {**dict.fromkeys(first, "a"), later: "b"}
    assert [(known.alias, known.model_name, known.engines) for known in list_aliases(queue.engine)] == [
        ("house", "large", 1)
    ]
    assert remove_alias(queue.engine, "house")
    assert not remove_alias(queue.engine, "house")
    queue.enqueue("ok", model="house")
    assert queue.dispatch() == []
    assert queue_status(queue.engine).unserved == {"house": 1}


def test_an_alias_hides_a_model_of_the_same_name(queue: Queue) -> None:
    register(queue, "a", "small")
    register(queue, "b", "large")
    set_alias(queue.engine, "small", "large")
    [job_id] = queue.enqueue("ok", model="small")
    queue.dispatch()
    assert engines_of(queue) == {job_id: "b"}


@pytest.mark.parametrize(
    ("name", "target"), [("a b", "m"), ("", "m"), ("x", "é"), ("x", "x"), ("y", "house"), ("m", "z")]
)
def test_an_alias_that_cannot_be_one_is_refused(queue: Queue, name: str, target: str) -> None:
    set_alias(queue.engine, "house", "m")
    with pytest.raises(InvalidJobError):
        set_alias(queue.engine, name, target)


@pytest.mark.parametrize("model", ["", "two words", "x" * 101, 7])
def test_a_job_s_model_must_be_a_name(queue: Queue, model: object) -> None:
    with pytest.raises(InvalidJobError, match="model"):
        queue.enqueue("ok", model=model)


@pytest.mark.parametrize("state", ["loading", "stopping"])
def test_an_engine_that_is_not_ready_gets_no_jobs_and_none_go_to_the_lists_without_one(
    queue: Queue, state: str
) -> None:
    register(queue, "a", "small", state=state)
    queue.enqueue("ok")
    queue.enqueue("ok", model="small")
    assert queue.dispatch() == []
    assert queue_status(queue.engine).unserved == {}  # it will serve them


def test_an_engine_without_a_worker_gets_no_jobs_and_one_that_may_have_none_gets_one(queue: Queue) -> None:
    register(queue, "a", worker_silent=30)
    ids = queue.enqueue(*["ok"] * 3)
    assert queue.dispatches() == []
    untried = register(queue, "b", worker_silent=None)
    assert [(each.engine, len(each.hints)) for each in queue.dispatches()] == [("b", 1)]
    assert queue.dispatches(depth=1) == []
    [first] = [job_id for job_id in ids if queue.job(job_id).state == "dispatched"]
    start(queue, first, untried)
    assert [(each.engine, len(each.hints)) for each in queue.dispatches()] == [("b", 2)]


def test_what_waited_for_an_engine_that_lost_its_worker_is_queued_again(queue: Queue) -> None:
    session = register(queue, "a")
    queue.enqueue("ok")
    queue.dispatch()
    for silent, recalled in ((None, []), (2000, []), (2300, [("a", 1)])):
        queue.rows(
            "UPDATE engine_session SET worker_heartbeat_at = now() - make_interval(secs => CAST(:s AS float8))"
            " WHERE id = :id",
            s=silent,
            id=session,
        )
        assert [tuple(row)[:2] for row in queue.ask("queue/recall_lost", worker_seconds=2200)] == recalled
    assert queue.count("queued") == 1


def test_an_engine_that_never_had_a_worker_gives_back_the_job_it_got_and_gets_no_other(queue: Queue) -> None:
    register(queue, "b", worker_silent=None)
    [first, _] = queue.enqueue("ok", "ok")
    assert [each.engine for each in queue.dispatches()] == ["b"]
    assert queue.ask("queue/recall_lost", worker_seconds=30) == []
    queue.rows("UPDATE job SET dispatched_at = now() - interval '31 seconds' WHERE state = 'dispatched'")
    [lost] = queue.ask("queue/recall_lost", worker_seconds=30)
    assert (lost.engine_name, lost.jobs, lost.dispatch_nos) == ("b", 1, [1])
    assert queue.count("queued") == 2
    assert queue.dispatches() == []
    [session] = queue.rows("SELECT id FROM engine_session")
    assert len(queue.ask("worker/present", session_id=str(session.id))) == 1
    assert [len(each.hints) for each in queue.dispatches()] == [2]
    assert queue.job(first).state == "dispatched"


@pytest.mark.parametrize(
    ("age", "runs", "state"), [(2900.0, False, "ready"), (9000.0, True, "ready"), (9000.0, False, "loading")]
)
def test_an_engine_that_is_new_or_loads_or_runs_jobs_without_a_word_of_its_worker_keeps_what_it_got(
    queue: Queue, age: float, runs: bool, state: str
) -> None:
    session = register(queue, "b", worker_silent=None, age=age)
    ids = queue.enqueue("ok", "ok")
    queue.dispatch()
    [waiting] = engines_of(queue)
    if runs:
        start(queue, *(job_id for job_id in ids if job_id != waiting), session, engine_name="b")
    queue.rows("UPDATE engine_session SET state = :state", state=state)
    queue.rows("UPDATE job SET dispatched_at = now() - interval '1 hour' WHERE state = 'dispatched'")
    assert queue.ask("queue/recall_lost", worker_seconds=3000) == []


def test_what_is_published_while_stale_messages_are_removed_stays(queue: Queue, redis: Redis) -> None:
    stale, fresh = Hint(uuid4(), 1), Hint(uuid4(), 1)
    broker = Broker(queue.settings)
    broker.publish([stale, fresh], [stale], "a")
    broker.remove({stale}, "a")
    assert (listed(redis, A), broker.depth("a")) == ([fresh], ListLengths(1, 0))
    broker.close()


def test_a_worker_has_two_heartbeats_and_two_answers_of_its_engine_to_show_that_it_is_there(queue: Queue) -> None:
    settings = queue.settings.model_copy(update={"heartbeat_seconds": 10.0})
    assert worker_silence(settings) == 30


def test_presence_is_not_noted_before_the_engine_has_recorded_itself(queue: Queue) -> None:
    assert queue.ask("worker/present", session_id=str(uuid4())) == []


def test_without_any_engine_jobs_go_to_the_lists_that_every_worker_consumes(queue: Queue) -> None:
    register(queue, "a", silent=ENGINE_SILENCE_SECONDS + 1)
    [job_id] = queue.enqueue("ok")
    queue.enqueue("ok", model="small")
    assert [each.engine for each in queue.dispatches()] == [""]
    assert engines_of(queue) == {job_id: ""}


def test_of_an_engine_s_sessions_the_last_one_counts(queue: Queue) -> None:
    register(queue, "a", "old", age=100)
    register(queue, "a", "new", age=10)
    queue.enqueue("ok", model="old")
    [job_id] = queue.enqueue("ok", model="new")
    assert [hint.job_id for hint in queue.dispatch()] == [job_id]


def test_what_waited_for_a_lost_engine_goes_to_another_in_order(queue: Queue, redis: Redis) -> None:
    lost = register(queue, "a")
    ids = queue.enqueue(*(f"ok {n}" for n in range(6)))
    planned = [row.id for row in queue.rows("SELECT id FROM job ORDER BY source_key, id")]
    assert sorted(ids) == sorted(planned)
    with running(Dispatcher(queue.settings)):
        eventually(lambda: redis.llen(A) == 6)
        fall_silent(queue, lost)
        register(queue, "b")
        with running(Reaper(queue.settings)):  # which gives engines time to be heard of
            eventually(lambda: redis.llen(B) == 6)
            eventually(lambda: not redis.exists(A))
    assert [hint.job_id for hint in listed(redis, B) if hint] == planned
    assert set(queue.events(ids[0])) == {"republished"}
    assert queue.rows("SELECT DISTINCT failures, engine_deaths FROM job") == [(0, 0)]


@pytest.mark.parametrize("state", ["loading", "ready"])
def test_an_engine_that_starts_again_under_its_name_keeps_what_waits_for_it(queue: Queue, state: str) -> None:
    lost = register(queue, "a")
    queue.enqueue("ok")
    queue.dispatch()
    fall_silent(queue, lost, 1000)
    register(queue, "a", state=state)
    assert queue.ask("queue/recall_lost", worker_seconds=22) == []
    assert queue.count("dispatched") == 1


@pytest.mark.parametrize("ended", [False, True])
def test_an_engine_is_lost_once_nothing_was_heard_of_it_for_long_enough(queue: Queue, ended: bool) -> None:
    lost = register(queue, "a")
    queue.enqueue("ok")
    queue.dispatch()
    if ended:
        queue.rows("UPDATE engine_session SET ended_at = now(), state = 'ended'")
    with queue.engine.begin() as connection:  # in which no time passes
        heard = f"now() - interval '{ENGINE_SILENCE_SECONDS - 0.1} s'"
        connection.execute(text(f"UPDATE engine_session SET heartbeat_at = {heard}"))
        assert connection.execute(statement("queue/recall_lost"), {"worker_seconds": 22}).all() == []
    fall_silent(queue, lost, ENGINE_SILENCE_SECONDS + 0.1)
    assert [(row.engine_name, row.jobs) for row in queue.ask("queue/recall_lost", worker_seconds=22)] == [("a", 1)]
    assert queue.count("queued") == 1


def test_jobs_of_a_lost_machine_are_taken_back_uncharged_and_before_their_leases_expire(queue: Queue) -> None:
    session = register(queue, "a", silent=ENGINE_SILENCE_SECONDS + 1)
    taken, alive, elsewhere = queue.enqueue("ok", "ok", "ok")
    start(queue, taken, session, beat=1600)
    start(queue, alive, session, beat=1400)
    start(queue, elsewhere, register(queue, "b"), beat=1600)
    assert [row.id for row in queue.ask("queue/reap_lost", **LOST)] == [taken]
    job = queue.job(taken)
    assert (job.state, job.failures, job.engine_deaths, job.reason) == ("queued", 0, 0, "machine_lost")
    assert (queue.outcomes(taken), queue.events(taken)) == (["lost"], ["lost"])
    assert [queue.job(each).state for each in (alive, elsewhere)] == ["running", "running"]


def test_a_job_that_takes_machines_down_again_and_again_comes_to_an_end(queue: Queue) -> None:
    session = register(queue, "a", silent=ENGINE_SILENCE_SECONDS + 1)
    [job_id] = queue.enqueue("ok")
    seen = []
    while queue.job(job_id).state != "dead":
        assert len(seen) < 9
        start(queue, job_id, session, beat=1600)
        queue.ask("queue/reap_lost", **LOST)
        seen.append(queue.job(job_id).engine_deaths)
    assert seen == [0] * FREE_MACHINE_LOSSES + [1, 2, 3, 4]
    assert queue.job(job_id).reason == "engine_killer"


def test_a_job_whose_cancellation_was_requested_is_cancelled(queue: Queue) -> None:
    session = register(queue, "a", state="ended")
    [job_id] = queue.enqueue("ok")
    start(queue, job_id, session, beat=1600, cancel_requested=True)
    queue.ask("queue/reap_lost", **LOST)
    assert queue.job(job_id).state == "cancelled"


def test_an_engine_without_jobs_gets_half_of_what_waits_for_another(queue: Queue) -> None:
    """The last ones in planned order, of those that it may run; their earlier messages are stale."""
    register(queue, "a", "small")
    ids = queue.enqueue(*(f"ok {n}" for n in range(8)))
    queue.enqueue("ok", model="small")
    queue.dispatch()
    planned = [row.id for row in queue.rows("SELECT id FROM job ORDER BY source_key, id") if row.id in ids]
    register(queue, "b", "large")
    start(queue, planned[0], register(queue, "x", state="ended"), engine_name="b")
    queue.rows("UPDATE job SET started_at = now(), engine_name = 'b' WHERE state = 'running'")
    made = Dispatches(queue.settings, queue.ask)
    engines = made.engines()
    depths = {"a": ListLengths(8, 0), "b": ListLengths(0, 0)}
    queue.rows("UPDATE job SET dispatched_at = now() + interval '1 hour' WHERE state = 'dispatched'")
    assert list(made.hand_over(engines, depths, set())) == []  # they have waited for less than a second
    queue.rows("UPDATE job SET dispatched_at = now() - interval '2 s' WHERE state = 'dispatched'")
    assert list(made.hand_over(engines, depths, {"b"})) == []
    [given] = made.hand_over(engines, depths, set())
    assert (given.engine, given.ordinary) == ("b", [Hint(planned[-1], 2)])  # as many as it runs
    assert queue.job(planned[-1]).engine_name == "b"


def test_a_model_is_inherited_by_follow_ups(queue: Queue) -> None:
    [parent] = queue.enqueue("ok", model="small")
    row = {
        "id": str(uuid4()), "parent_id": str(parent), "tenant": "t", "kind": "echo", "priority": 0, "deadline": None,
        "source_key": "s", "digest": "d", "max_attempts": 3, "max_compute_seconds": None, "request": "{}",
    }  # fmt: skip
    named = row | {"id": str(uuid4()), "model": "large"}
    queue.ask("worker/follow_ups", rows=json.dumps([row, named]))
    made = {str(found.id): found.model for found in queue.rows("SELECT id, model FROM job WHERE parent_id IS NOT NULL")}
    assert made == {row["id"]: "small", named["id"]: "large"}
