"""Pauses of a part of the queue, as they are typed: what waits, what goes on, and who says so."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from tests.support.command_line import one_line, typed
from tests.support.engine_rows import register
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, eventually, running
from thothy_ai.admin.doctor.queue import queue as check_queue
from thothy_ai.admin.drain import obstacles
from thothy_ai.admin.job_watch import JobWatch
from thothy_ai.admin.model_aliases import set_alias
from thothy_ai.cli.views.queue import obstacle_sentences
from thothy_ai.cli.views.watch_job import status_of
from thothy_ai.db.statements import statement
from thothy_ai.queue.collector import QueueCollector
from thothy_ai.queue.dispatcher import Dispatcher
from thothy_ai.queue.forecast.forecaster import Forecaster
from thothy_ai.queue.forecast.store import asking, observe
from thothy_ai.queue.pauses import SCOPES, Scope, pause_part, resume_part

WAITS = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
# A pause that holds the job "held" back, which names the model `small`, or its alias, and not "free".
NAMES: dict[Scope, str] = {"kind": "hook", "tenant": "acme", "model": "small", "engine": "a"}
PARTS = [(scope, NAMES[scope]) for scope in SCOPES]
HELD = "UPDATE job SET kind = 'hook', tenant = 'acme' WHERE id = :id"

RUNS = """
    UPDATE job SET state = 'running', worker = 'w', attempt = 1, started_at = now(),
        lease_until = now() + interval '1 minute'
    WHERE id = :id
"""
AGED = """
    UPDATE job SET enqueued_at = now() - make_interval(mins => :minutes),
        not_before = now() - make_interval(mins => :minutes)
    WHERE id = :id
"""


def two_jobs(queue: Queue, *, model: str = "small", **options: object) -> tuple[object, object]:
    """Engines `a` with `small` and `b` with `large`, a job that every pause holds back, and one that none does."""
    register(queue, "a", "small")
    register(queue, "b", "large")
    [held] = queue.enqueue("held", model=model, **options)
    [free] = queue.enqueue("free", model="large")
    queue.rows(HELD, id=held)
    return held, free


def pause(queue: Queue, scope: Scope, name: str, *options: str) -> str:
    return typed(queue.settings, "queue", "pause", f"--{scope}", name, *options).stdout


def resume(queue: Queue, scope: Scope, name: str) -> str:
    return typed(queue.settings, "queue", "resume", f"--{scope}", name).stdout


@pytest.mark.parametrize(("scope", "name"), PARTS)
def test_a_dispatcher_leaves_out_what_is_paused_until_it_is_resumed(queue: Queue, scope: Scope, name: str) -> None:
    held, free = two_jobs(queue)
    assert pause(queue, scope, name).startswith(f"Paused {scope} {name}. ")
    with running(Dispatcher(queue.settings)):
        eventually(lambda: queue.job(free).state == "dispatched")
        assert queue.job(held).state == "queued"
        assert resume(queue, scope, name).startswith(f"Resumed. The {scope} {name} had been paused since ")
        eventually(lambda: queue.job(held).state == "dispatched")


@pytest.mark.parametrize("engines", [1, 2])
@pytest.mark.parametrize(("scope", "name"), PARTS)
def test_urgent_jobs_wait_and_dispatched_ones_go_on(queue: Queue, scope: Scope, name: str, engines: int) -> None:
    for engine in ("a", "b")[:engines]:
        register(queue, engine, "small")
    [low] = queue.enqueue("low", model="small", priority=-5)
    queue.dispatch()
    queue.rows("UPDATE job SET engine_name = 'a'")
    [urgent] = queue.enqueue("urgent", model="small", priority=50)
    queue.rows(HELD, id=urgent)
    pause_part(queue.engine, scope, name, by="me")
    sent = queue.dispatches()
    if scope == "engine" and engines == 2:
        assert [each.engine for each in sent] == ["b"]
    else:
        assert sent == []
    assert queue.job(low).state == "dispatched"
    resume_part(queue.engine, scope, name)
    assert [hint.job_id for hint in queue.dispatch()] == ([] if sent else [urgent])


def test_a_paused_model_is_paused_under_its_aliases_and_an_alias_alone(queue: Queue) -> None:
    set_alias(queue.engine, "quick", "small")
    held, free = two_jobs(queue, model="quick")
    for name in ("small", "quick"):
        pause_part(queue.engine, "model", name, by="me")
        assert [hint.job_id for hint in queue.dispatch()] == ([free] if name == "small" else [])
        assert queue.job(held).state == "queued"
        resume_part(queue.engine, "model", name)
    assert [hint.job_id for hint in queue.dispatch()] == [held]


def test_a_paused_engine_is_handed_no_jobs(queue: Queue) -> None:
    [job_id] = queue.enqueue("one")
    register(queue, "a")
    register(queue, "b")
    queue.rows("UPDATE job SET state = 'dispatched', engine_name = 'b', dispatched_at = now() - interval '1 minute'")
    handed = {"donor": "b", "engine": "a", "serves": [], "limit": 9}
    pause_part(queue.engine, "engine", "a", by="me")
    assert queue.ask("queue/hand_over", **handed) == []
    resume_part(queue.engine, "engine", "a")
    assert [row.id for row in queue.ask("queue/hand_over", **handed)] == [job_id]


@pytest.mark.parametrize(("scope", "name"), PARTS)
def test_a_dispatch_that_comes_too_late_finds_the_pause(queue: Queue, scope: Scope, name: str) -> None:
    """Its snapshot is older than the pause."""
    held, _ = two_jobs(queue)
    dispatched: list[object] = []
    late = threading.Thread(target=lambda: dispatched.extend(queue.ask("queue/dispatch", ids=[held], engine="a")))
    with queue.engine.begin() as operator:
        operator.execute(statement("queue/lock_control"))
        operator.execute(statement("queue/pause_part"), {"scope": scope, "name": name, "by": "me", "note": None})
        late.start()
        eventually(lambda: queue.rows(WAITS))
    late.join(PATIENCE)
    assert dispatched == []
    assert queue.ask("queue/dispatch", ids=[held], engine="a") == []
    resume_part(queue.engine, scope, name)
    assert len(queue.ask("queue/dispatch", ids=[held], engine="a")) == 1


@pytest.mark.parametrize(("scope", "name"), PARTS)
def test_who_waits_says_why(queue: Queue, scope: Scope, name: str) -> None:
    held, free = two_jobs(queue)
    pause(queue, scope, name, "--note", "new image")
    command = f"thothy queue resume --{scope} {name}"

    def why(job_id: object) -> str:
        seen = JobWatch(queue.engine, job_id).look()
        return status_of(replace(seen, waiting=replace(seen.waiting, dispatcher=True))).text

    assert why(held) == f"queued: {scope} {name} is paused: new image (`{command}` resumes it)"
    assert why(free) == "queued: next"
    said = [line for line in obstacle_sentences(obstacles(queue.engine)) if name in line]
    assert said[0].startswith(f"The {scope} {name} has been paused since ")
    assert said[0].endswith(f" (new image). `{command}` resumes it.")
    shown = typed(queue.settings, "queue", "status").stdout
    assert said[0] in " ".join(shown.split())
    [listed] = json.loads(typed(queue.settings, "queue", "status", "--json").stdout)["pauses"]
    assert (listed["scope"], listed["name"], listed["note"]) == (scope, name, "new image")
    assert " on " in listed["paused_by"]
    [warning] = [found for found in check_queue(queue.settings) if "is paused" in str(found)]
    assert f"`{command}`" in str(warning)


@pytest.mark.parametrize(("scope", "name"), PARTS)
def test_held_jobs_are_counted_and_do_not_age(queue: Queue, scope: Scope, name: str) -> None:
    held, free = two_jobs(queue)
    queue.rows("UPDATE engine_session SET ended_at = now() WHERE engine_name = 'b'")
    for job_id, minutes in ((held, 90), (free, 30)):
        queue.rows(AGED, minutes=minutes, id=job_id)
    pause_part(queue.engine, scope, name, by="me")
    registry, collector = CollectorRegistry(), QueueCollector(queue.engine)
    registry.register(collector)
    collector.read()
    jobs, age = (2, 0) if scope == "engine" else (1, 30 * 60)  # of the only engine, no job may run
    assert registry.get_sample_value("thothy_queue_held_jobs") == jobs
    assert registry.get_sample_value("thothy_queue_oldest_age_seconds") == pytest.approx(age, abs=60)
    sums = {each: registry.get_sample_value("thothy_queue_pauses", {"scope": each}) for each in SCOPES}
    assert sums == {each: float(each == scope) for each in SCOPES}


@pytest.mark.parametrize(("scope", "name"), PARTS)
def test_waiting_takes_back_and_waits_for_the_part_alone(queue: Queue, scope: Scope, name: str) -> None:
    held, free = two_jobs(queue)
    [sent] = queue.enqueue("sent", model="small")
    queue.rows(HELD, id=sent)
    queue.rows(
        "UPDATE job SET state = 'dispatched', dispatched_at = now(), engine_name = 'a' WHERE id <> :free", free=free
    )
    queue.rows(
        "UPDATE job SET state = 'dispatched', dispatched_at = now(), engine_name = 'b' WHERE id = :free", free=free
    )
    queue.rows(RUNS, id=held)
    late = typed(queue.settings, "queue", "pause", f"--{scope}", name, "--wait", "--timeout", "0", exit_code=1)
    assert late.stdout == f"Paused {scope} {name}.\n1 job is still running …\n"
    assert one_line(late) == f"1 job is still running after 0 s; the {scope} {name} stays paused"
    assert [queue.job(each).state for each in (held, sent, free)] == ["running", "queued", "dispatched"]
    queue.rows("UPDATE job SET state = 'queued', worker = NULL, lease_until = NULL WHERE id = :id", id=held)
    said = pause(queue, scope, name, "--wait")
    assert said.startswith("Already paused since ")
    assert f"No job of the {scope} {name} is running. `thothy queue resume --{scope} {name}`" in " ".join(said.split())
    assert queue.job(free).state == "dispatched"


@pytest.mark.parametrize(("scope", "name"), PARTS)
def test_a_forecast_leaves_out_what_waits_for_a_pause_to_end(queue: Queue, scope: Scope, name: str) -> None:
    two_jobs(queue)
    queue.rows("UPDATE engine_session SET ended_at = now() WHERE engine_name = 'b'")
    pause_part(queue.engine, scope, name, by="me")
    with queue.engine.connect() as connection:
        seen = observe(asking(connection), 0.0)
    assert seen.partly_paused
    # Of the only engine, no job may run.
    assert [each.key.model for each in seen.waiting] == ([] if scope == "engine" else ["large"])


def test_a_pause_disturbs_the_forecasts_that_it_outlasts(queue: Queue) -> None:
    two_jobs(queue)
    queue.rows("INSERT INTO forecast VALUES (now(), now(), 2, 1, 2, 0)")
    pause_part(queue.engine, "kind", "hook", by="me")
    with running(Forecaster(queue.settings)):
        eventually(lambda: queue.rows("SELECT disturbed FROM forecast")[0].disturbed)


@pytest.mark.parametrize(("scope", "name"), PARTS)
def test_a_second_pause_keeps_who_and_when(queue: Queue, scope: Scope, name: str) -> None:
    register(queue, "a")
    assert resume(queue, scope, name) == f"The {scope} {name} was not paused.\n"
    pause(queue, scope, name, "--note", "one")
    [first] = queue.rows("SELECT * FROM queue_pause")
    assert pause(queue, scope, name).startswith("Already paused since ")
    assert queue.rows("SELECT * FROM queue_pause") == [first]
    assert "(one); the note is now: two." in " ".join(pause(queue, scope, name, "--note", "two").split())
    [second] = queue.rows("SELECT * FROM queue_pause")
    assert (second.paused_at, second.paused_by, second.note) == (first.paused_at, first.paused_by, "two")


def test_unknown_kinds_and_engines_are_refused_with_the_known_ones(queue: Queue) -> None:
    said = one_line(typed(queue.settings, "queue", "pause", "--engine", "z", exit_code=2))
    assert "'z' is not known: no engine has reported within a day" in said
    register(queue, "a")
    said = one_line(typed(queue.settings, "queue", "pause", "--engine", "z", exit_code=2))
    assert "'z' is not one of a" in said
    assert "hook" in one_line(typed(queue.settings, "queue", "pause", "--kind", "poem", exit_code=2))
    for scope in ("tenant", "model"):  # of which no job is known yet
        typed(queue.settings, "queue", "pause", f"--{scope}", "new's")
    assert "resume --tenant" in typed(queue.settings, "queue", "status").stdout
    assert queue.rows("SELECT count(*) AS pauses FROM queue_pause")[0].pauses == 2


def test_there_are_no_other_scopes(queue: Queue) -> None:
    with pytest.raises(IntegrityError), queue.engine.begin() as connection:
        connection.execute(text("INSERT INTO queue_pause (scope, name, paused_by) VALUES ('source', 'x', 'me')"))
