"""`Readings`: the sources that all open pages share, read once a second by threads that run while anyone looks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from thothy_ai.admin.alarms import BY_PROMETHEUS, Alarm, Alarms, Sight
from thothy_ai.admin.engines import EngineStatus, engines
from thothy_ai.admin.prometheus_alerts import PrometheusAlerts
from thothy_ai.admin.today import DayFigures, DaySource
from thothy_ai.admin.top.engines import EngineFigures, EngineSource
from thothy_ai.admin.top.polling import Poller, Unreachable
from thothy_ai.admin.top.queue import QueueSource, RecordFigures, WorkerFigures, WorkerSource
from thothy_ai.db.connect import make_engine, reaching
from thothy_ai.settings import Settings

READ_SECONDS = 1.0  # between two readings of a source
ALERT_SECONDS = 5.0  # between two of Prometheus, which judges its alerts every 15 s
LINGER_SECONDS = 20.0  # that sources are still read after the last viewer has left: pages are reloaded
FIRST_SECONDS = 2.0  # for the first readings
NAMES = {"record": "Postgres", "workers": "Redis", "engine": "The engine of this machine"}


class FleetSource:
    """Reads the registered engines from Postgres."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engine = make_engine(settings, application="serve", pool_size=1)

    def read(self) -> list[EngineStatus]:
        with reaching(self._settings):
            return engines(self._engine)

    def close(self) -> None:
        self._engine.dispose()


class Readings:
    """Owns the reading threads and the latest readings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pollers: dict[str, Poller[Any]] = {}
        self._last: dict[str, Any] = {}  # the last reading of each source, shown while the source does not answer
        self._alarms = Alarms()
        self._viewers = 0
        self._left_at = 0.0

    @property
    def record(self) -> RecordFigures | None:
        return cast("RecordFigures | None", self._latest("record"))

    @property
    def workers(self) -> WorkerFigures | None:
        return cast("WorkerFigures | None", self._latest("workers"))

    @property
    def engine(self) -> EngineFigures | None:
        return cast("EngineFigures | None", self._latest("engine"))

    @property
    def fleet(self) -> Sequence[EngineStatus] | None:
        return cast("Sequence[EngineStatus] | None", self._latest("fleet"))

    @property
    def day(self) -> DayFigures | None:
        return cast("DayFigures | None", self._latest("day"))

    def away(self) -> list[tuple[str, str]]:
        """The services that did not answer when last asked, and why."""
        asked = ((name, poller.latest) for name, poller in self._pollers.items() if poller.polled.is_set())
        return [(NAMES[name], part.why) for name, part in asked if name in NAMES and isinstance(part, Unreachable)]

    def alarms(self) -> list[Alarm]:
        """The alarms whose conditions hold."""
        fresh = {
            name: None if isinstance(poller.latest, Unreachable) else poller.latest
            for name, poller in self._pollers.items()
        }
        away = {name for name, _ in self.away()}
        sight = Sight(
            fresh.get("record"),
            fresh.get("workers"),
            fresh.get("engine"),
            fresh.get("fleet"),
            fresh.get("day"),
            fresh.get("alerts") or (),
            postgres_away=NAMES["record"] in away,
            redis_away=NAMES["workers"] in away,
        )
        return self._alarms.look(sight, time.monotonic())

    @property
    def judges(self) -> bool:
        """Whether all sources but Prometheus have been read since viewing began, so that an empty list means
        no alarms.
        """
        asked = [poller for name, poller in self._pollers.items() if name != "alerts"]
        return bool(asked) and all(poller.polled.is_set() for poller in asked)

    def unjudged(self) -> tuple[str, int] | None:
        """Why some alarms are not judged, and how many; None if all are."""
        if self._settings.prometheus_url is None:
            return "no Prometheus is configured (THOTHY_PROMETHEUS_URL)", len(BY_PROMETHEUS)
        poller = self._pollers.get("alerts")
        if poller is None or not poller.polled.is_set():
            return "Prometheus has not been read yet", len(BY_PROMETHEUS)
        if isinstance(latest := poller.latest, Unreachable):
            return f"Prometheus does not answer at {latest.why}", len(BY_PROMETHEUS)
        return None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Keep reading during the block, and for a while after it."""
        self._viewers += 1
        try:
            yield
        finally:
            self._viewers -= 1
            self._rest_later()

    async def begin(self) -> None:
        """Start reading for the first viewer, and wait a little for the first readings."""
        settings = self._settings
        if not self._pollers:
            self._pollers = {
                "record": Poller(lambda: QueueSource(settings), READ_SECONDS),
                "workers": Poller(lambda: WorkerSource(settings), READ_SECONDS),
                "fleet": Poller(lambda: FleetSource(settings), READ_SECONDS),
                "day": Poller(lambda: DaySource(settings), READ_SECONDS),
            }
            if settings.engine_url is not None:
                self._pollers["engine"] = Poller(lambda: EngineSource(settings), READ_SECONDS)
            if (prometheus := settings.prometheus_url) is not None:
                self._pollers["alerts"] = Poller(lambda: PrometheusAlerts(prometheus), ALERT_SECONDS)
            for poller in self._pollers.values():
                poller.start()
        polled = [poller.polled for poller in self._pollers.values()]
        if not all(event.is_set() for event in polled):
            until = time.monotonic() + FIRST_SECONDS
            await asyncio.to_thread(lambda: [event.wait(max(0.0, until - time.monotonic())) for event in polled])
        self._rest_later()

    def close(self) -> None:
        """Stop reading all of the sources."""
        for poller in self._pollers.values():
            poller.stop(0.0)
        self._pollers = {}

    def _latest(self, name: str) -> object:
        latest = self._pollers[name].latest if name in self._pollers else None
        if latest is not None and not isinstance(latest, Unreachable):
            self._last[name] = latest
        return self._last.get(name)

    def _rest_later(self) -> None:
        self._left_at = time.monotonic()
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self._rest)

    def _rest(self) -> None:
        if not self._viewers and time.monotonic() - self._left_at >= LINGER_SECONDS - 0.5:
            self.close()
