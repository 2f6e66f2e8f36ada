"""`thothy report forecast`, as typed, over a real Postgres."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, text

from tests.support.command_line import Run
from tests.support.forecast_rows import history, job, past_drains, resident
from tests.support.queue_bench import eventually, running
from thothy_ai.cli.views.forecast import accuracy_words, time_fields
from thothy_ai.queue.control import set_paused
from thothy_ai.queue.forecast.accuracy import Accuracy
from thothy_ai.queue.forecast.forecaster import Forecaster
from thothy_ai.queue.forecast.store import current
from thothy_ai.settings import Settings


def test_in_words(run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    history(engine, resident(engine))
    past_drains(engine, 5)
    for _ in range(30):
        job(engine, "queued")
    job(engine, "queued", model="absent")
    monkeypatch.setenv("THOTHY_PUBLISH_BY", "17:00 Europe/Berlin")
    done = run("report", "forecast")
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "queue 30 jobs due or running, 1 engine ready" in said
    assert re.search(r"empty in about [^,]+, and within \S.+ with 90 % probability empty at \S+ \S+, and by ", said)
    assert "GPU-seconds left 150" in said
    assert "without an engine 1 job whose model no engine serves, not counted above" in said
    assert re.search(r"publishing at \S+ \S+, \d+ jobs? will still be open, or \d+ at a slow pace", said)
    assert "earlier forecasts median error 25 %; the time of 90 % probability held in 100 % (5 forecasts" in said
    assert "hook any 30 150.0 40" in said


def kept(engine: Engine) -> bool:
    """Whether the forecaster has kept one: what the command finds by itself is not remembered."""
    with engine.connect() as connection:
        return connection.execute(text("SELECT 1 FROM forecast_state")).first() is not None


def once_the_engine_has_ended(run: Run, engine: Engine, settings: Settings) -> str:
    """The forecast's words when one was kept before."""
    with running(Forecaster(settings)):
        eventually(lambda: kept(engine))
        with engine.begin() as connection:
            connection.execute(
                text("UPDATE engine_session SET state = 'ended', end_reason = 'stopped', ended_at = now()")
            )
        eventually(lambda: "no engine is ready" in run("report", "forecast").output)
        return " ".join(run("report", "forecast").output.split())


def test_arrivals_are_said_if_there_are_any(run: Run, engine: Engine) -> None:
    history(engine, resident(engine))
    job(engine, "queued")
    assert "arriving" not in run("report", "forecast").output
    made = replace(current(engine), arrivals_per_second=0.001, with_arrivals_p50=70.0)
    assert ("if jobs keep arriving", "about 1 m 10 s, with 0.1 jobs/min arriving") in list(time_fields(made))


def test_seconds_of_cpus_are_no_gpu_seconds(run: Run, engine: Engine) -> None:
    history(engine, resident(engine, gpus=0))
    job(engine, "queued")
    said = " ".join(run("report", "forecast").output.split())
    assert "compute-seconds left 2 " in said
    assert "kind model jobs compute-seconds learnt from" in said
    assert "GPU" not in said
    assert json.loads(run("report", "forecast", "--json").output)["on_gpu"] is False
    resident(engine)  # beside one on GPUs
    assert "compute-seconds left" in run("report", "forecast").output


def test_without_an_engine_seconds_are_of_the_devices_that_were_there(
    run: Run, engine: Engine, settings: Settings
) -> None:
    history(engine, resident(engine))
    job(engine, "queued")
    said = once_the_engine_has_ended(run, engine, settings)
    assert "GPU-seconds left 5 " in said
    assert "kind model jobs GPU-seconds learnt from" in said


def test_seconds_of_devices_that_are_not_known_are_not_said(run: Run, engine: Engine) -> None:
    history(engine, resident(engine, state="ended", end_reason="stopped", ended_at=datetime.now(UTC)))
    job(engine, "queued")
    assert "seconds left" not in run("report", "forecast").output
    assert json.loads(run("report", "forecast", "--json").output)["gpu_seconds"] is None


@pytest.mark.parametrize(
    ("drains", "held", "believed"),
    [(0, 1.0, False), (4, 1.0, False), (5, 1.0, True), (20, 0.75, True), (20, 0.7, False), (20, 0.2, False)],
)
def test_a_bound_that_has_not_held_is_not_shown(
    run: Run, engine: Engine, drains: int, held: float, believed: bool
) -> None:
    history(engine, resident(engine))
    past_drains(engine, drains, held)
    job(engine, "queued")
    said = " ".join(run("report", "forecast").output.split())
    assert ("with 90 % probability" in said) is believed
    assert ("(90 %: not enough history yet)" in said) is not believed
    assert re.search(r"empty in about \S+", said)
    found = json.loads(run("report", "forecast", "--json").output)
    assert (found["p90"] is not None, found["past"]["p90_believed"]) == (believed, believed)
    assert found["p50"] is not None


def test_as_json(run: Run, engine: Engine) -> None:
    history(engine, resident(engine))
    past_drains(engine, 5)
    job(engine, "queued")
    found = json.loads(run("report", "forecast", "--json").output)
    assert found["basis"] == "learnt"
    assert found["p50"] < found["p90"]
    assert found["past"]["median_error"] == pytest.approx(0.25)
    assert found["kinds"][0]["kind"] == "hook"
    assert found["on_gpu"] is True


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


def test_an_engine_that_starts_again(run: Run, engine: Engine) -> None:
    now = datetime.now(UTC)
    lost = {"started_at": now - timedelta(seconds=60), "ready_at": now - timedelta(seconds=40), "ended_at": now}
    history(engine, resident(engine, engine_name="a", state="ended", end_reason="killed", **lost))
    job(engine, "queued", deadline=now + timedelta(seconds=5))
    said = " ".join(run("report", "forecast").output.split())
    assert "queue 1 job due or running, 0 engines ready, 1 starting again" in said
    assert "empty in about" in said


def test_late_jobs_without_an_engine(run: Run, engine: Engine, settings: Settings) -> None:
    session = resident(engine, engine_name="a", ready_at=datetime.now(UTC))
    history(engine, session)
    for _ in range(100):
        job(engine, "queued", deadline=datetime.now(UTC) + timedelta(seconds=50))
    said = once_the_engine_has_ended(run, engine, settings)
    assert "will miss their deadline if the engines came back now, or 100 at a slow pace" in said


def test_an_empty_queue_and_the_report_beside_it(run: Run) -> None:
    assert "empty" in run("report", "forecast").output
    assert run("report", "--json").exit_code == 0
    run("report", "--json", "forecast", exit_code=2)


def test_one_late_job_is_one_job(run: Run, engine: Engine) -> None:
    history(engine, resident(engine))
    for _ in range(100):
        job(engine, "queued", priority=100)
    job(engine, "queued", deadline=datetime.now(UTC) + timedelta(seconds=20))
    said = " ".join(run("report", "forecast").output.split())
    assert "late 1 job will miss its deadline, or 1 at a slow pace" in said


@pytest.mark.parametrize(
    ("past", "said"),
    [
        (Accuracy(0, 0, 0, None, None), "none to compare with yet"),
        (
            Accuracy(1, 1, 0, 0.072, 1.0),
            "median error 7 %; the time of 90 % probability held in 100 % (1 forecast of the last drain)",
        ),
        (
            Accuracy(20, 1200, 3, 0.13, 0.87),
            (
                "median error 13 %; the time of 90 % probability held in 87 % (1,200 forecasts of the last 20 drains,"
                " without 3 during which jobs arrived or the queue was paused)"
            ),
        ),
    ],
)
def test_how_wrong_earlier_forecasts_were(past: Accuracy, said: str) -> None:
    assert accuracy_words(past) == said
