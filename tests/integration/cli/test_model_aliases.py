"""`thothy models alias`, `aliases`, `unalias`; jobs that name a model; and what says that none serves it."""

from __future__ import annotations

import json
from pathlib import Path

from prometheus_client import generate_latest
from prometheus_client.registry import CollectorRegistry

from tests.support.command_line import Run
from tests.support.echo_kind import Echo
from tests.support.engine_rows import register
from tests.support.queue_bench import Queue
from thothy_ai.admin.doctor.queue import queue as queue_check
from thothy_ai.producer import EnqueueOptions
from thothy_ai.queue.collector import QueueCollector
from thothy_ai.queue.status import MAX_MODELS


def test_an_alias_is_pointed_at_a_model_listed_and_removed(run: Run, queue: Queue) -> None:
    register(queue, "a", "small")
    assert run("models", "aliases").stdout == "No aliases.\n"
    assert run("models", "alias", "house", "small").stdout == "house now stands for small.\n"
    moved = run("models", "alias", "house", "large").stdout
    assert moved == "house now stands for large, no longer small. No engine serves it at the moment.\n"
    [known] = json.loads(run("models", "aliases", "--json").stdout)
    assert (known["alias"], known["model_name"], known["engines"]) == ("house", "large", 0)
    assert "house" in run("models", "aliases").stdout
    run("models", "unalias", "house")
    assert run("models", "unalias", "house", exit_code=1).stderr == "thothy: there is no alias house\n"


def test_an_alias_that_cannot_be_one_is_an_error(run: Run) -> None:
    for name, target in (("two words", "m"), ("x", "x"), ("x", "")):
        assert run("models", "alias", name, target, exit_code=2).stderr.startswith("thothy: ")


def test_jobs_that_wait_for_a_missing_model_are_shown_everywhere(run: Run, queue: Queue, tmp_path: Path) -> None:
    register(queue, "a", "small")
    request = ("hook", "--source", "Crocks are back.", "--channel", "newsletter")
    run("enqueue", *request, "--model", "huge")
    lines = tmp_path / "jobs.jsonl"
    fields = {"kind": "hook", "request": {"source": "Crocks are back.", "channel": "newsletter"}}
    lines.write_text("\n".join(json.dumps(fields | {"model": model}) for model in ("huge", "small", None)))
    run("enqueue", "--jsonl", str(lines))
    assert sorted(str(row.model) for row in queue.rows("SELECT model FROM job")) == ["None", "huge", "huge", "small"]
    assert json.loads(run("queue", "status", "--json").stdout)["unserved"] == {"huge": 2}
    assert "2 jobs wait for huge, which no engine serves." in run("queue", "status").stdout
    [warning] = [found for found in queue_check(queue.settings) if found.fix]
    assert "2 jobs wait for the model huge" in warning.says
    assert "thothy models alias huge" in str(warning.fix)
    run("models", "alias", "huge", "large")
    [warning] = [found for found in queue_check(queue.settings) if found.fix]
    assert "2 jobs wait for huge, an alias of large, which no engine serves" in warning.says
    assert str(warning.fix).startswith(
        "start an engine with large, load it as an adapter (`thothy adapters load large="
    )
    assert "2 jobs wait for huge, an alias of large, which no engine serves." in run("queue", "status").stdout
    now = json.loads(run("queue", "status", "--json").stdout)
    assert (now["unserved"], now["unserved_aliases"]) == ({"huge": 2}, {"huge": "large"})
    registry = CollectorRegistry()
    registry.register(collector := QueueCollector(queue.engine))
    collector.read()
    assert b'thothy_queue_unserved_jobs{model="huge"} 2.0' in generate_latest(registry)


def test_a_drain_names_the_model_of_an_alias_that_no_engine_serves(run: Run, queue: Queue) -> None:
    run("models", "alias", "house", "large")
    queue.enqueue("ok", model="house")
    said = run("drain", "--model-timeout", "0s", exit_code=3).stderr
    assert "1 job waits for house, an alias of large, which no engine serves: start an engine with large, or" in said


def test_jobs_of_more_missing_models_than_are_listed_are_counted(run: Run, queue: Queue) -> None:
    names = [f"m{number:03}" for number in range(MAX_MODELS + 1)]
    queue.producer.enqueue_many([(Echo(text="ok"), EnqueueOptions(model=name)) for name in names])
    said = run("queue", "status").stdout.splitlines()
    assert said[-2] == f"1 job waits for m{MAX_MODELS - 1}, which no engine serves."
    assert said[-1] == "1 job waits for other models that no engine serves."
    *_, warning = [found for found in queue_check(queue.settings) if found.fix]
    assert warning.says == "1 job waits for other models that no engine serves"
    drain = run("drain", "--model-timeout", "1s", exit_code=3)
    assert drain.stderr.rstrip().endswith("MODEL`. 1 job waits for other models that no engine serves.")


def test_a_model_that_cannot_be_a_name_is_refused(run: Run) -> None:
    said = run("enqueue", "hook", "--source", "x", "--channel", "newsletter", "--model", "two words", exit_code=2)
    assert said.stderr.startswith("thothy: model: 'two words' is not a name")
