"""`Faults`: what each fault does to a rig, and how it is undone.

Lasting faults (a slow network, a stopped worker, an unreachable Postgres) continue while others are injected; only a
fault at the same target waits for their end. A full disk is simulated without root: a folder takes the place of Redis'
snapshot, so that the snapshot cannot be written, and Redis refuses every write from then on, as on a full disk.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from typing import Any

import psycopg
from redis.exceptions import RedisError

from thothy_ai.chaos.options import DISPATCHERS, SHORT_AWAY, SLOW_WORKER
from thothy_ai.chaos.plan import POSTGRES, REDIS, Fault, FaultKind, rivals
from thothy_ai.chaos.rig import Rig, send
from thothy_ai.db.connect import make_engine, reaching
from thothy_ai.db.statements import statement
from thothy_ai.errors import ThothyError
from thothy_ai.queue.broker import Broker
from thothy_ai.queue.dispatches import Dispatches
from thothy_ai.queue.hints import ListLengths, count_waiting

DELAY = 0.2  # seconds that a slow network adds to each round trip
LASTING_SECONDS = 3.0
BRIEF_SECONDS = 1.5
SKEWS = (-86_400, -90, 90, 3_600, 40 * 86_400)  # seconds; the last one is in another month's partition
BGSAVE_SECONDS = 2.0
ROGUE_URGENT = 16  # urgent jobs that a dispatcher without the lock dispatches to each engine
OF_SLOW_WORKER = (FaultKind.NETWORK_SLOW, FaultKind.NETWORK_CUT, FaultKind.CLOCK_SKEWED)
CUT_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'thothy-{}'"


@dataclass(frozen=True, slots=True)
class Lasting:
    """A fault that continues until it is undone."""

    kind: FaultKind
    until: float  # monotonic seconds
    undo: Callable[[], None]


class Faults:
    """Injects faults, one at a time. `lost_messages`: how many messages Redis held when its data was lost."""

    def __init__(self, rig: Rig, away_seconds: float) -> None:
        self.lost_messages = 0
        self._rig = rig
        self._away_seconds = away_seconds
        self._lasting: list[Lasting] = []

    def next_of(self, plan: list[Fault]) -> Fault:
        """The first fault whose target is free; if none is, the first fault, which has to wait."""
        busy = {kind for lasting in self._lasting for kind in rivals(lasting.kind)}
        return next((fault for fault in plan if fault.kind not in busy), plan[0])

    def inject(self, fault: Fault) -> str:
        """Inject the fault; returns what was done, in words."""
        self._end(rivals(fault.kind))
        draw = random.Random(fault.draw)  # noqa: S311 - a schedule, not a secret
        if fault.kind in REDIS:
            return self._break_redis(fault.kind)
        if fault.kind in POSTGRES:
            return self._break_postgres(fault.kind, draw)
        if fault.kind in OF_SLOW_WORKER:
            return self._disturb_slow_worker(fault.kind, draw)
        return self._break_process(fault.kind, draw)

    def undo_due(self) -> None:
        """Undo the faults that have lasted long enough."""
        now = time.monotonic()
        for lasting in [lasting for lasting in self._lasting if lasting.until <= now]:
            self._undo(lasting)

    def undo_all(self) -> None:
        """Wait for the end of every lasting fault, and undo it."""
        self._end(tuple(FaultKind))

    def _end(self, kinds: Collection[FaultKind]) -> None:
        ending = [lasting for lasting in self._lasting if lasting.kind in kinds]
        for lasting in sorted(ending, key=lambda lasting: lasting.until):
            time.sleep(max(0.0, lasting.until - time.monotonic()))
            self._undo(lasting)

    def _undo(self, lasting: Lasting) -> None:
        self._lasting.remove(lasting)
        lasting.undo()

    def _last(self, kind: FaultKind, seconds: float, undo: Callable[[], None]) -> None:
        self._lasting.append(Lasting(kind, time.monotonic() + seconds, undo))

    def _break_process(self, kind: FaultKind, draw: random.Random) -> str:
        rig, number = self._rig, SIGKILL
        match kind:
            case FaultKind.WORKER_STALLED:
                name = draw.choice(list(rig.workers))
                stalled = rig.signal(name, SIGSTOP)
                seconds = rig.settings.lease_seconds + BRIEF_SECONDS
                self._last(kind, seconds, lambda: send(stalled, SIGCONT))
                return f"{name} for {seconds:g} s"
            case FaultKind.MACHINE_LOST:  # not the machine of the worker behind proxies, which other faults need
                kept = rig.workers.get(SLOW_WORKER)
                engine = draw.choice([engine for engine in rig.engines if engine != kept])
                return f"{engine}; {rig.lose_machine(engine)} takes its place"
            case FaultKind.WORKER_KILLED:
                name = draw.choice(list(rig.workers))
            case FaultKind.WORKER_TERMINATED:
                name, number = draw.choice(list(rig.workers)), SIGTERM
            case FaultKind.ENGINE_KILLED:
                name = draw.choice(rig.engines)
            case FaultKind.DISPATCHER_KILLED:
                name = draw.choice(DISPATCHERS)
            case _:
                name = "reaper"
        pid = rig.signal(name, number)
        return f"{name}, process {pid}" if pid else f"{name} is down already"

    def _break_redis(self, kind: FaultKind) -> str:
        match kind:
            case FaultKind.REDIS_KILLED:
                lost = self._count_messages()
                self._rig.valkey.process.kill()
                self._rig.valkey.process.start()
                return f"messages lost: {lost}"
            case FaultKind.REDIS_FLUSHED:
                lost = self._count_messages()
                with self._rig.redis() as redis:
                    redis.flushall()
                return f"messages lost: {lost}"
            case FaultKind.REDIS_CUT:
                with self._rig.redis() as redis:
                    return f"{redis.client_kill_filter(_type='normal', skipme=True)} connections"
            case FaultKind.REDIS_MEMORY_FULL:
                self._configure_redis("maxmemory", 1)
                self._last(kind, LASTING_SECONDS, lambda: self._configure_redis("maxmemory", 0))
                return f"what takes memory is refused for {LASTING_SECONDS:g} s"
            case _:
                return self._fill_redis_disk()

    def _fill_redis_disk(self) -> str:
        blocker = self._rig.valkey.folder / "dump.rdb"
        blocker.mkdir(exist_ok=True)
        with self._rig.redis() as redis:
            redis.config_set("save", "3600 1")
            redis.bgsave()
            end = time.monotonic() + BGSAVE_SECONDS
            while redis.info("persistence")["rdb_last_bgsave_status"] == "ok" and time.monotonic() < end:
                time.sleep(0.02)

        def undo() -> None:
            blocker.rmdir()
            self._configure_redis("save", "")

        self._last(FaultKind.REDIS_DISK_FULL, LASTING_SECONDS, undo)
        return f"writes are refused for {LASTING_SECONDS:g} s"

    def _configure_redis(self, name: str, value: str | int) -> None:
        with self._rig.redis() as redis:
            redis.config_set(name, value)

    def _count_messages(self) -> int:
        settings = self._rig.settings
        try:
            with self._rig.redis() as redis:
                lost = sum(count_waiting(redis, settings)) + int(str(redis.hlen(f"{settings.queue_prefix}unacked")))
        except RedisError:
            return 0
        self.lost_messages += lost
        return lost

    def _break_postgres(self, kind: FaultKind, draw: random.Random) -> str:
        rig = self._rig
        match kind:
            case FaultKind.POSTGRES_RESTARTED:
                rig.postgres.process.stop()
                rig.start_postgres()
                return "in an orderly way"
            case FaultKind.POSTGRES_CRASHED:
                rig.crash_postgres()
                rig.start_postgres()
                return "without a checkpoint"
            case FaultKind.POSTGRES_AWAY:
                seconds, self._away_seconds = self._away_seconds, SHORT_AWAY
                rig.postgres.process.stop()
                self._last(kind, seconds, rig.start_postgres)
                return f"for {seconds:g} s"
            case FaultKind.POSTGRES_CUT:
                with suppress(psycopg.OperationalError):
                    rig.postgres.execute(CUT_SESSIONS.format("%"))
                return "all of the service"
            case _:
                return self._split_dispatchers(draw)

    def _split_dispatchers(self, draw: random.Random) -> str:
        """Stop one dispatcher amid its work, make both lose the lock, and let a third dispatch without it."""
        name, settings = draw.choice(DISPATCHERS), self._rig.settings
        pid = self._rig.signal(name, SIGSTOP)
        self._last(FaultKind.DISPATCHERS_SPLIT, BRIEF_SECONDS, lambda: send(pid, SIGCONT))
        self._rig.postgres.execute(CUT_SESSIONS.format("dispatcher"))
        engine, broker = make_engine(settings, application="rogue", pool_size=1), Broker(settings)

        def ask(name: str, **parameters: object) -> Sequence[Any]:
            with engine.begin() as connection:
                return connection.execute(statement(name), parameters).all()

        try:
            with reaching(settings):
                rogue = Dispatches(settings, ask)
                engines = rogue.engines()
                empty = {known.name: ListLengths(0, 0) for known in engines}
                made = list(rogue.dispatch(engines, empty, ROGUE_URGENT))
            with suppress(ThothyError):  # Redis may be down
                for dispatch in made:
                    broker.publish(dispatch.ordinary, dispatch.urgent, engine=dispatch.engine)
        finally:
            broker.close()
            engine.dispose()
        jobs = sum(len(dispatch.hints) for dispatch in made)
        return f"{name} is stopped, another dispatches {jobs} jobs without the lock"

    def _disturb_slow_worker(self, kind: FaultKind, draw: random.Random) -> str:
        proxies, clock = self._rig.proxies, self._rig.clock
        match kind:
            case FaultKind.NETWORK_SLOW:
                proxies.delay = DELAY
                self._last(kind, LASTING_SECONDS, lambda: setattr(proxies, "delay", 0.0))
                return f"of one worker, for {LASTING_SECONDS:g} s"
            case FaultKind.NETWORK_CUT:
                proxies.cut()
                return "of one worker"
            case _:
                seconds = draw.choice(SKEWS)
                clock.set(seconds)
                self._last(kind, LASTING_SECONDS, lambda: clock.set(0))
                return f"of one worker by {seconds:+d} s, for {LASTING_SECONDS:g} s"
