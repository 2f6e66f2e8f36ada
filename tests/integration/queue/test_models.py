"""Jobs that name a model or an alias, and what waits for a model that no engine serves."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from tests.support.echo_kind import Echo
from tests.support.engine_lists import engines_of
from tests.support.engine_rows import register
from tests.support.queue_bench import Queue
from thothy_ai.admin.model_aliases import list_aliases, remove_alias, set_alias
from thothy_ai.errors import InvalidJobError
from thothy_ai.producer import EnqueueOptions
from thothy_ai.queue.collector import OTHER_MODELS, QueueCollector
from thothy_ai.queue.status import MAX_MODELS, queue_status


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


def test_a_model_is_inherited_by_follow_ups(queue: Queue) -> None:
    [parent] = queue.enqueue("ok", model="small")
    row = {
        "id": str(uuid4()), "parent_id": str(parent), "tenant": "t", "kind": "echo", "priority": 0, "deadline": None,
        "source_key": "s", "digest": "d", "max_attempts": 3, "max_compute_seconds": None, "request": "{}",
    }  # fmt: skip
    named = row | {"id": str(uuid4()), "model": "large"}
    queue.ask("queue/follow_ups", rows=json.dumps([row, named]))
    made = {str(found.id): found.model for found in queue.rows("SELECT id, model FROM job WHERE parent_id IS NOT NULL")}
    assert made == {row["id"]: "small", named["id"]: "large"}
