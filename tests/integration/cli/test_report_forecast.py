"""`thothy report forecast`, as typed, over a real Postgres."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import Engine

from tests.integration.queue.test_forecast import history, job, resident
from tests.support.command_line import Run
from thothy_ai.queue.control import set_paused


def test_in_words(run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    history(engine, resident(engine))
    for _ in range(30):
        job(engine, "queued")
    job(engine, "queued", model="absent")
    monkeypatch.setenv("THOTHY_PUBLISH_BY", "17:00 Europe/Berlin")
    done = run("report", "forecast")
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "queue 30 jobs due or running, 1 engines ready" in said
    assert "with 90 % probability within" in said
    assert "GPU-seconds left 150" in said
    assert "1 job of a model that no engine serves" in said
    assert "publishing" in said
    assert "earlier forecasts none to compare with yet" in said
    assert "hook any 30 150.0 40" in said


def test_as_json(run: Run, engine: Engine) -> None:
    history(engine, resident(engine))
    job(engine, "queued")
    found = json.loads(run("report", "forecast", "--json").output)
    assert found["basis"] == "learnt"
    assert found["p50"] < found["p90"]
    assert found["past"]["median_error"] is None
    assert found["kinds"][0]["kind"] == "hook"


@pytest.mark.parametrize(
    ("engines", "paused", "said"),
    [
        (0, False, "not known: no engine is ready"),
        (1, False, "not known: no job has finished yet"),
        (1, True, "The queue is paused: the times count from when it is resumed."),
    ],
)
def test_what_is_not_known(run: Run, engine: Engine, engines: int, paused: bool, said: str) -> None:
    for _ in range(engines):
        resident(engine)
    job(engine, "queued")
    set_paused(engine, paused=paused)
    assert said in run("report", "forecast").output


def test_an_empty_queue_and_the_report_beside_it(run: Run) -> None:
    assert "empty" in run("report", "forecast").output
    assert run("report", "--json").exit_code == 0
    run("report", "--json", "forecast", exit_code=2)
