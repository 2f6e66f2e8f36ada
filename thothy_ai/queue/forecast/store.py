"""Reads observations from Postgres; keeps the history, the latest forecast, and past ones with their outcomes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine

from thothy_ai.db.statements import statement
from thothy_ai.queue.forecast import memory
from thothy_ai.queue.forecast.accuracy import DRAINS, Accuracy, Past, accuracy
from thothy_ai.queue.forecast.learning import History, learn
from thothy_ai.queue.forecast.outlook import Forecast, forecast
from thothy_ai.queue.forecast.values import EndedAttempts, Key, LoadSums, Observation, RunningJobs, WaitingJobs
from thothy_ai.settings import PublishingTime

LOOK_BACK = 6 * 3600.0  # seconds of history from which a service without a kept history learns
SLACK = 5.0  # seconds that a forecast may be late before it counts as stale

SNAPSHOT: Mapping[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}

Ask = Callable[..., Sequence[Any]]  # the rows of the statement of a name


@dataclass(frozen=True, slots=True)
class Kept:
    """The row of `forecast_state`. `age`: seconds since it was written; `every`: until the next one is due."""

    history: History
    forecast: Forecast
    every: float
    age: float

    @property
    def fresh(self) -> bool:
        """Whether forecasts are still being made."""
        return self.age <= 2 * self.every + SLACK


def asking(connection: Connection) -> Ask:
    def ask(name: str, **parameters: object) -> Sequence[Any]:
        done = connection.execute(statement(name), parameters)
        return done.all() if done.returns_rows else ()

    return ask


def current(engine: Engine, publish_by: PublishingTime | None = None) -> Forecast:
    """The latest forecast if the dispatcher makes any, otherwise one that is made here and not kept.

    It has no p90 unless earlier ones have held. `publish_by`: the publishing time for one that is made here.
    """
    with engine.connect().execution_options(**SNAPSHOT) as connection:
        ask = asking(connection)
        kept = read_kept(ask)
        if kept is not None and kept.fresh:
            made = kept.forecast.after(kept.age)
        else:
            before = kept.history if kept else History()
            seen = observe(ask, before.at)
            made = made_of(learn(before, seen), seen, publish_by)
        believed = made.p90 is not None and _past(ask, DRAINS).p90_believed
        return made if believed else replace(made, p90=None)


def made_of(history: History, seen: Observation, publish_by: PublishingTime | None) -> Forecast:
    """The forecast for an observation that is part of `history`."""
    return forecast(history, seen, publish_by.next_after(seen.at) if publish_by else None)


def read_kept(ask: Ask) -> Kept | None:
    """What was kept; None if nothing was, or by a version that wrote another form."""
    rows = ask("forecast/state")
    if not rows:
        return None
    row = rows[0]
    try:
        latest = Forecast.from_json(row.latest["forecast"])
        return Kept(memory.from_json(row.learnt), latest, float(row.latest["every"]), max(row.age, 0.0))
    except (KeyError, TypeError, ValueError):
        return None


def keep(ask: Ask, history: History, made: Forecast, every: float) -> None:
    latest = {"forecast": made.to_json(), "every": every}
    ask("forecast/keep", learnt=json.dumps(memory.to_json(history)), latest=json.dumps(latest))


def past_accuracy(engine: Engine, drains: int = DRAINS) -> Accuracy:
    """How wrong the forecasts of the last drains were."""
    with engine.connect() as connection:
        return _past(asking(connection), drains)


def _past(ask: Ask, drains: int) -> Accuracy:
    rows = ask("forecast/past", drains=drains)
    return accuracy(Past(row.began_at.timestamp(), row.p50, row.p90, row.actual, row.disturbed) for row in rows)


def observe(ask: Ask, since: float) -> Observation:
    """The queue now, and what ended after `since` (seconds since the epoch), or in the last hours if that is longer.

    `ask` reads one snapshot: a job that ended between two statements would be in one of them and not in the other.
    """
    now = ask("admin/now")[0][0]
    begin = datetime.fromtimestamp(max(since, now.timestamp() - LOOK_BACK), now.tzinfo)
    attempts = ask("forecast/attempts", since=begin, until=now)
    waiting, running, engines = ask("forecast/waiting"), ask("forecast/running"), ask("forecast/engines")
    control = ask("queue/control")
    devices = [row.devices for row in engines for _ in range(row.engines + len(row.returning))]
    return Observation(
        at=now.timestamp(),
        waiting=tuple(WaitingJobs(Key(row.kind, row.model), row.jobs, row.planned, row.deadline) for row in waiting),
        running=tuple(RunningJobs(Key(row.kind, row.model), row.jobs, row.age) for row in running),
        oldest=min((row.oldest for row in (*waiting, *running)), default=None),
        engines={row.model: row.engines for row in engines},
        returning={row.model: row.returning for row in engines},
        joined=max((row.joined for row in engines if row.joined is not None), default=None),
        ended=_ended(ask, attempts, begin, now),
        load=LoadSums(*(float(sum(getattr(row, name) for row in attempts)) for name in LoadSums.__slots__)),
        paused=bool(control and control[0].paused),
        partly_paused=bool(ask("queue/pauses")),
        delayed={Key(row.kind): row.jobs for row in ask("forecast/delayed")},
        capacity=min((row.capacity for row in engines), default=0),
        gpus=sum(devices) / len(devices) if devices else 1.0,
        on_gpu=bool(engines) and all(row.on_gpu for row in engines),
    )


def _ended(ask: Ask, attempts: Sequence[Any], since: datetime, until: datetime) -> dict[Key, EndedAttempts]:
    found = {
        Key(row.kind, row.model): EndedAttempts(
            attempts=row.attempts,
            compute=row.compute,
            compute_squares=row.compute_squares,
            runs=row.runs,
            log_run=row.log_run,
            log_run_squares=row.log_run_squares,
        )
        for row in attempts
    }
    for row in ask("forecast/finished", since=since, until=until):
        key = Key(row.kind, row.model)
        found[key] = replace(found.get(key, EndedAttempts()), finished=row.finished, left=row.ended)
    children: dict[str, dict[str, float]] = {}
    for row in ask("forecast/follow_ups", since=since, until=until):
        children.setdefault(row.parent, {})[row.kind] = row.jobs
    for parent, each in children.items():  # learnt by the parents' kind alone: they go under any of its keys
        key = next((key for key in found if key.kind == parent), Key(parent))
        found[key] = replace(found.get(key, EndedAttempts()), children=each)
    return found


def statistics(made: Forecast) -> Mapping[str, float]:
    """What a recorded forecast holds, if it can be compared with what comes; otherwise nothing."""
    if made.paused or made.p50 is None or made.p90 is None or not made.open_jobs:
        return {}
    return {"open_jobs": made.open_jobs, "p50": made.p50, "p90": made.p90, "late": round(made.late)}
