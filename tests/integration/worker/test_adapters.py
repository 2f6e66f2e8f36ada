"""Jobs that name an adapter: which engine they go to, what their calls ask for, and what becomes of them when it is
unloaded, or loaded anew, while they wait and while they run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest

from tests.support.engine_rows import register, set_adapters
from tests.support.fake_engine import FakeClient, FakeGeneration
from tests.support.plan_kind import Parts
from tests.support.queue_bench import Queue, RunnerBench, eventually, runner_bench
from thothy_ai.admin.adapters import check_name, conflicts, list_adapters
from thothy_ai.admin.engines import engines
from thothy_ai.admin.model_aliases import set_alias
from thothy_ai.engine.api import GenerationRequest
from thothy_ai.errors import AdapterNameError
from thothy_ai.producer.drafts import load_kinds
from thothy_ai.queue.dispatches import Dispatches
from thothy_ai.queue.hints import ListLengths
from thothy_ai.queue.pauses import pause_part, resume_part
from thothy_ai.queue.status import unserved_jobs

KINDS = ("tests.support.echo_kind", "tests.support.plan_kind")


@contextmanager
def adapted(queue: Queue, **adapters: str) -> Iterator[tuple[RunnerBench, UUID]]:
    """A worker of an engine that has these adapters, and is recorded with them."""
    load_kinds(queue.settings.model_copy(update={"kinds": KINDS}))
    client = FakeClient()
    client.model_name, client.loaded = "base", dict(adapters)
    session = register(queue, client.name, "base", adapters=adapters, session=UUID(client.session_id))
    with runner_bench(queue, client, kinds=KINDS) as bench:
        yield bench, session


def routed(queue: Queue) -> dict[str, int]:
    """How many jobs each engine gets."""
    return {each.engine: len(each.hints) for each in queue.dispatches()}


def test_a_job_goes_to_an_engine_that_has_its_adapter(queue: Queue) -> None:
    register(queue, "a", "base", adapters={"acme": "1"})
    register(queue, "b", "base")
    set_alias(queue.engine, "house", "acme")
    queue.enqueue(*["ok"] * 5, model="acme")
    queue.enqueue(*["ok"] * 5, model="house")
    assert routed(queue) == {"a": 10}
    pause_part(queue.engine, "model", "acme", by="test")
    queue.enqueue("ok", model="acme")
    queue.enqueue("ok", model="house")
    assert routed(queue) == {}
    resume_part(queue.engine, "model", "acme")
    pause_part(queue.engine, "model", "base", by="test")
    queue.enqueue("ok", model="base")
    assert routed(queue) == {"a": 2}


def test_a_job_whose_adapter_no_engine_has_waits_and_is_named(queue: Queue) -> None:
    session = register(queue, "a", "base", adapters={"acme": "1"})
    queue.enqueue("ok", "ok", model="nova")
    [job_id] = queue.enqueue("ok", model="base")
    assert [hint.job_id for hint in queue.dispatch()] == [job_id]
    with queue.engine.connect() as connection:
        assert unserved_jobs(connection).jobs == {"nova": 2}
    set_adapters(queue, session, {"nova": "2"})
    assert len(queue.dispatch()) == 2


def test_calls_ask_for_the_adapter_and_the_model_itself_verifies(queue: Queue) -> None:
    with adapted(queue, acme="1") as (bench, _):
        [named, plain] = [
            queue.producer.enqueue(Parts(parts=("ok one", "ok two"), verification="ok looked"), model=model).id
            for model in ("acme", "base")
        ]
        bench.settle()
        asked = {request.id: request.adapter for request in bench.client.submitted}
    assert [asked[f"{named}.1.{number}"] for number in range(3)] == ["acme", "acme", ""]
    assert [asked[f"{plain}.1.{number}"] for number in range(3)] == ["", "", ""]
    rows = queue.rows("SELECT job_id, adapter FROM attempt")
    assert {row.job_id: row.adapter for row in rows} == {named: "acme", plain: ""}
    made = {row.job_id: row.provenance for row in queue.rows("SELECT * FROM artifact")}
    assert made[named]["adapter"] == {"name": "acme", "digest": "1"}
    assert "adapter" not in made[plain]


def test_a_job_keeps_its_adapter_in_a_session_that_is_not_recorded_yet(queue: Queue) -> None:
    """The engine was started anew, its worker claims what is in the list, and the registrar comes later."""
    load_kinds(queue.settings.model_copy(update={"kinds": KINDS}))
    client = FakeClient()
    client.model_name, client.loaded = "base", {"acme": "1"}
    register(queue, client.name, "base", adapters=client.loaded)  # the session before
    with runner_bench(queue, client, kinds=KINDS) as bench:
        named, plain = (bench.work("ok", model=model)[0] for model in ("acme", "base"))
        eventually(lambda: queue.outcomes(named) == queue.outcomes(plain) == ["succeeded"])
        assert {request.id.partition(".")[0]: request.adapter for request in client.submitted} == {
            str(named): "acme",
            str(plain): "",
        }


def test_a_job_whose_adapter_is_unloaded_after_its_dispatch_waits_for_it_unharmed(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thothy_ai.worker.attempt.UNLOADED_SECONDS", 0.1)
    with adapted(queue, acme="1") as (bench, session):
        del bench.client.loaded["acme"]
        [job_id] = bench.work("ok", model="acme")
        eventually(lambda: queue.outcomes(job_id) == ["released"])
        job = queue.job(job_id)
        assert (job.state, job.reason, job.failures) == ("queued", "unknown_adapter", 0)
        set_adapters(queue, session, {})  # as its registrar records it meanwhile
        eventually(lambda: queue.rows("SELECT FROM job WHERE not_before < now()"))
        assert queue.dispatch() == []
        bench.client.loaded["acme"] = "1"
        set_adapters(queue, session, {"acme": "1"})
        bench.settle()
    assert queue.outcomes(job_id) == ["released", "succeeded"]


@pytest.mark.parametrize("digests", [("2",), ("2", "1"), (None, "1", "2")])
def test_an_artifact_is_of_one_adapters_weights(queue: Queue, digests: tuple[str | None, ...]) -> None:
    """They change between two calls of a step. What the name leads to at last is no proof."""
    with adapted(queue, acme="1") as (bench, _):
        submit = bench.client.submit

        async def submit_and_change(request: GenerationRequest) -> FakeGeneration:
            generation = await submit(request)
            first, second = (f".1.{number}" for number in range(2))
            if request.id.endswith(first):
                bench.client.loaded["acme"] = "2"
            for digest in digests if request.id.endswith(second) else ():
                bench.client.loaded.pop("acme", None)
                bench.client.loaded |= {"acme": digest} if digest else {}
            return generation

        with patch.object(bench.client, "submit", submit_and_change):
            job_id = queue.producer.enqueue(Parts(parts=("ok one", "ok two")), model="acme").id
            bench.settle()
    attempts = queue.rows("SELECT outcome, reason FROM attempt WHERE job_id = :id ORDER BY attempt", id=job_id)
    assert [tuple(row) for row in attempts] == [("released", "adapter_changed"), ("succeeded", None)]
    [artifact] = queue.rows("SELECT provenance FROM artifact")
    assert artifact.provenance["adapter"] == {"name": "acme", "digest": digests[-1]}
    assert queue.job(job_id).failures == 0


def test_weights_that_are_loaded_while_calls_run_did_not_write_the_artifact(queue: Queue) -> None:
    with adapted(queue, acme="1") as (bench, _):
        bench.client.held = True
        [job_id] = bench.work("ok", model="acme")
        eventually(lambda: bench.client.submitted)
        bench.client.loaded["acme"] = "2"
        bench.client.held = False
        bench.settle()
    assert queue.outcomes(job_id) == ["succeeded"]
    [artifact] = queue.rows("SELECT provenance FROM artifact")
    assert artifact.provenance["adapter"]["digest"] == "1"


def test_names_that_are_taken_and_names_that_mean_two_things(queue: Queue) -> None:
    register(queue, "a", "base", adapters={"acme": "1", "nova": "1"})
    register(queue, "b", "base", adapters={"acme": "2"})
    register(queue, "c", "large", adapters={"nova": "3", "base": "4"})
    set_alias(queue.engine, "house", "base")
    for name, model, says in (
        ("house", "base", "house is an alias of base"),
        ("large", "base", "large is the model of engine c"),
        ("nova", "large", "nova is an adapter of base on engine a"),
    ):
        with pytest.raises(AdapterNameError, match=says):
            check_name(queue.engine, name, model)
    check_name(queue.engine, "acme", "base")
    check_name(queue.engine, "fresh", "large")
    found = dict(conflicts(engines(queue.engine), {"nova": "base"}))
    assert [says for says in found if "acme" in says] == [
        "engines have different weights as the adapter acme (1 on a; 2 on b)"
    ]
    assert any(says.startswith("nova is an adapter of base and of large") for says in found)
    assert any(says == "the adapter nova gets no jobs: nova is an alias of base" for says in found)
    assert any(says.startswith("base is an adapter and a model") for says in found)
    assert [(each.name, each.model, each.engines) for each in list_adapters(queue.engine)] == [
        ("acme", "base", ("a",)), ("acme", "base", ("b",)), ("base", "large", ("c",)), ("nova", "base", ("a",)),
        ("nova", "large", ("c",)),
    ]  # fmt: skip


def test_what_is_read_to_dispatch_does_not_grow_with_the_number_of_adapters(queue: Queue) -> None:
    """Two engines have the same 100: no more is read than both have room for, and the first in planned order."""
    names = {f"voice-{number}": "1" for number in range(100)}
    for name in ("a", "b"):
        register(queue, name, "base", adapters=names)
    for name in names:
        queue.enqueue("ok", "ok", model=name, priority=0)
    urgent = queue.enqueue(*["ok"] * 3, model="voice-7", priority=5)
    read = list[int]()

    def ask(statement: str, **parameters: object) -> Sequence[Any]:
        rows = queue.ask(statement, **parameters)
        read.append(len(rows) if statement == "queue/due" else 0)
        return rows

    made = Dispatches(queue.settings.model_copy(update={"dispatch_min_depth": 8}), ask)
    engines = made.engines()
    full = [replace(engine, lowest=0) for engine in engines]
    [placed] = made.dispatch(full, {name: ListLengths(8, 0) for name in ("a", "b")}, 32)
    assert ({*placed.hints}, sum(read)) == ({hint for hint in placed.urgent if hint.job_id in urgent}, 3)
    read.clear()
    placed = list(made.dispatch(engines, {name: ListLengths(0, 0) for name in ("a", "b")}, 32))
    assert (sum(len(each.hints) for each in placed), sum(read)) == (16, 16)
