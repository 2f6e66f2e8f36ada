"""Which alarms one look at the installation raises, and that they are those of Prometheus."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from thothy_ai.admin.alarms import BY_PROMETHEUS, RULES, Alarm, Alarms, Sight
from thothy_ai.admin.processes import Connected
from thothy_ai.admin.today import DayFigures, DayYields
from thothy_ai.admin.top.engines import EngineFigures
from thothy_ai.admin.top.queue import HourFigures, QueueFigures, RecordFigures, WorkerFigures
from thothy_ai.queue.forecast.outlook import Basis, Forecast
from thothy_ai.queue.status import QueueStatus, StateCount

ALERTS = Path(__file__).parents[4] / "deploy/prometheus/alerts.yml"
LEADS = Connected(leads=True, led_seconds=9.0, quiet_seconds=0.0)
FORECAST = Forecast(0.0, Basis.LEARNT, False, 9.0, 0.0, 0.0, 1, None, 60.0, None, None, 0.0, 0.0, 0.0)
ENGINE = EngineFigures("m", "cuda", 4, 0, 100, 0.5, 9.0, 9.0, 0.01, 0.0, 0.9, 0.0, 0)
KIND = {
    "kind": "echo",
    "expired_15m": 0,
    "ended_5m": 9,
    "failed_5m": 0,
    "ended_1h": 99,
    "failed_1h": 0,
    "ended_1d": 2_000,
}


def record(*, paused: bool = False, hour: HourFigures | None = None, late: float = 0.0, **states: Any) -> RecordFigures:
    since = datetime.now(UTC) - timedelta(hours=2)
    status = QueueStatus({"running": StateCount(4), **states}, paused=paused, changed_at=since, note=None)
    forecast = replace(FORECAST, late=late)
    return RecordFigures(QueueFigures(status, 0.0, 1.0, forecast), hour or HourFigures(0, 0, 0, 0, ()))


def day(**row: int) -> DayFigures:
    kinds: tuple[Any, ...] = (SimpleNamespace(**{**KIND, "dead_1d": 0, "ended_1d": 2_000, **row}),)
    return DayFigures(DayYields(0, 0, 0, 0, 0), 0, (), kinds, {"dispatcher": LEADS, "reaper": LEADS})


HEALTHY = Sight(record(), WorkerFigures(1, 0), ENGINE, None, day())
STALLED = replace(ENGINE, busy_share=0.0)
FULL = replace(ENGINE, memory_used=99, memory_total=100, memory_planned=90)
WAITING = StateCount(5, due_age=300.0)


def names(sight: Sight) -> set[str]:
    return {alarm.name for alarm in Alarms().look(sight, 0.0)}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"postgres_away": True}, "ThothyPostgresUnreachable"),
        ({"redis_away": True}, "ThothyRedisUnreachable"),
        ({"workers": WorkerFigures(0, 0)}, "ThothyWorkerMissing"),
        ({"fleet": ()}, "ThothyEngineDown"),
        ({"engine": STALLED}, "ThothyEngineStalled"),
        ({"engine": replace(ENGINE, running=0)}, "ThothyJobsNotAdvancing"),
        ({"engine": FULL}, "ThothyGpuMemoryNearlyFull"),
        ({"record": record(queued=WAITING, running=StateCount())}, "ThothyQueueStopped"),
        ({"record": record(queued=WAITING, paused=True)}, "ThothyQueuePausedLong"),
        ({"record": record(running=StateCount(4, expired_leases=1))}, "ThothyLeasesNotReaped"),
        ({"record": record(late=2.0)}, "ThothyDeadlinesAtRisk"),
        ({"record": record(hour=HourFigures(30, 0, 0, 30, (), ("echo",)))}, "ThothyNothingPublishable"),
        ({"day": day(expired_15m=1)}, "ThothyDeadlinesMissed"),
        ({"day": day(failed_1h=20, failed_5m=5)}, "ThothyFailuresFast"),
        ({"day": day(dead_1d=30)}, "ThothyDeadLetters"),
        ({"day": replace(day(), processes={"reaper": LEADS})}, "ThothyDispatcherMissing"),
        ({"day": replace(day(), processes={"dispatcher": LEADS})}, "ThothyReaperMissing"),
    ],
)
def test_a_condition_raises_its_alarm_and_no_other(changes: dict[str, Any], name: str) -> None:
    assert names(HEALTHY) == set()
    assert names(replace(HEALTHY, **changes)) == {name}


def test_an_alarm_fires_once_its_condition_has_held_long_enough() -> None:
    alarms, sight = Alarms(), replace(HEALTHY, engine=STALLED)
    assert [alarm.fires for alarm in alarms.look(sight, 0.0)] == [False]
    assert [alarm.fires for alarm in alarms.look(sight, 120.0)] == [True]
    assert alarms.look(HEALTHY, 130.0) == []
    assert [alarm.fires for alarm in alarms.look(sight, 140.0)] == [False]
    long_paused = replace(HEALTHY, record=record(queued=WAITING, paused=True))
    assert [alarm.fires for alarm in Alarms().look(long_paused, 0.0)] == [True]  # the record knows since when


def test_what_a_firing_alarm_explains_is_left_out() -> None:
    alarms = Alarms()
    stopped = replace(HEALTHY, workers=WorkerFigures(0, 0), record=record(queued=WAITING, running=StateCount()))
    assert {alarm.name for alarm in alarms.look(stopped, 0.0)} == {"ThothyWorkerMissing", "ThothyQueueStopped"}
    assert {alarm.name for alarm in alarms.look(stopped, 500.0)} == {"ThothyWorkerMissing"}


def test_prometheus_has_the_word_on_the_others() -> None:
    grows = Alarm("ThothyQueueGrowing", "warning", "The queue grows", 30.0, fires=True)
    leader = Alarm("ThothyLeaderStuck", "critical", "The reaper does not end a round", 90.0, fires=False)
    sight = replace(HEALTHY, elsewhere=(grows, leader))
    assert Alarms().look(sight, 0.0) == [grows, leader]
    alarms, away = Alarms(), replace(sight, postgres_away=True)
    alarms.look(away, 0.0)
    assert [alarm.name for alarm in alarms.look(away, 100.0)] == ["ThothyPostgresUnreachable"]


def test_the_rules_are_those_of_prometheus() -> None:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    alerts = {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}
    units = {"m": 60, "s": 1}
    assert set(alerts) == {*RULES, *BY_PROMETHEUS}
    assert {name: alerts[name]["labels"]["severity"] for name in BY_PROMETHEUS} == BY_PROMETHEUS
    for name, (severity, seconds) in RULES.items():
        rule = alerts[name]
        held = rule.get("for", "0s")
        assert (rule["labels"]["severity"], int(held[:-1]) * units[held[-1]]) == (severity, seconds), name
        assert (ALERTS.parents[2] / "docs/runbooks" / f"{name}.md").exists()
