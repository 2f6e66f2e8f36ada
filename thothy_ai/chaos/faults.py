"""`Faults`: what each fault does to a rig, and how it is undone.

Lasting faults (a slow network, a stopped worker, a Postgres that is away) go on while others are injected; only a fault
at the same target waits for their end. A full disk is simulated without root: a folder takes the place of Redis'
snapshot, which thus cannot be written, and Redis refuses every write from then on, as it does on a full disk.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals
from typing import Any

import psycopg
from redis.exceptions import RedisError

from thothy_ai.chaos.options import DISPATCHERS, SHORT_AWAY, SLOW_WORKER
from thothy_ai.chaos.plan import Fault, FaultKind, rivals
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
CUT_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'thothy-{}'"


@dataclass(frozen=True, slots=True)
class Lasting:
    """A fault that goes on until it is undone."""

    kind: FaultKind
    until: float  # monotonic seconds
    undo: Callable[[], None]


class Faults:
    """Injects faults, one at a time. `lost_messages`: how many were in Redis when its data was lost."""

    def __init__(self, rig: Rig, away_seconds: float) -> None:
        self.lost_messages = 0
        self._rig = rig
        self._away_seconds = away_seconds
        self._lasting: list[Lasting] = []
        self._actions: dict[FaultKind, Callable[[random.Random], str]] = {
            FaultKind.WORKER_KILLED: lambda draw: self._signal(draw.choice(list(self._rig.workers)), SIGKILL),
            FaultKind.WORKER_TERMINATED: lambda draw: self._signal(draw.choice(list(self._rig.workers)), SIGTERM),
            FaultKind.WORKER_STALLED: self._stall_worker,
            FaultKind.ENGINE_KILLED: lambda draw: self._signal(draw.choice(self._rig.engines), SIGKILL),
            FaultKind.MACHINE_LOST: self._lose_machine,
            FaultKind.DISPATCHER_KILLED: lambda draw: self._signal(draw.choice(DISPATCHERS), SIGKILL),
            FaultKind.DISPATCHERS_SPLIT: self._split_dispatchers,
            FaultKind.REAPER_KILLED: lambda _: self._signal("reaper", SIGKILL),
            FaultKind.REDIS_KILLED: self._kill_redis,
            FaultKind.REDIS_FLUSHED: self._flush_redis,
            FaultKind.REDIS_CUT: self._cut_redis,
            FaultKind.REDIS_DISK_FULL: self._fill_redis_disk,
            FaultKind.REDIS_MEMORY_FULL: self._fill_redis_memory,
            FaultKind.POSTGRES_RESTARTED: self._restart_postgres,
            FaultKind.POSTGRES_CRASHED: self._crash_postgres,
            FaultKind.POSTGRES_AWAY: self._take_postgres_away,
            FaultKind.POSTGRES_CUT: self._cut_postgres,
            FaultKind.NETWORK_SLOW: self._slow_network,
            FaultKind.NETWORK_CUT: self._cut_network,
            FaultKind.CLOCK_SKEWED: self._skew_clock,
        }

    def next_of(self, plan: list[Fault]) -> Fault:
        """The first fault whose target is free; when none is, the first, which has to wait."""
        busy = {kind for lasting in self._lasting for kind in rivals(lasting.kind)}
        return next((fault for fault in plan if fault.kind not in busy), plan[0])

    def inject(self, fault: Fault) -> str:
        """Inject the fault; returns what was done, in words."""
        self._end(rivals(fault.kind))
        return self._actions[fault.kind](random.Random(fault.draw))  # noqa: S311 - a schedule, not a secret

    def undo_due(self) -> None:
        """Undo the faults that have lasted long enough."""
        now = time.monotonic()
        for lasting in [lasting for lasting in self._lasting if lasting.until <= now]:
            self._undo(lasting)

    def undo_all(self) -> None:
        """Undo every lasting fault when its time has come."""
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

    # Processes.

    def _signal(self, name: str, number: Signals) -> str:
        pid = self._rig.signal(name, number)
        return f"{name}, process {pid}" if pid else f"{name} is down already"

    def _lose_machine(self, draw: random.Random) -> str:
        """Not the machine of the worker behind proxies, which other faults need."""
        kept = self._rig.workers.get(SLOW_WORKER)
        engine = draw.choice([engine for engine in self._rig.engines if engine != kept])
        return f"{engine}; {self._rig.lose_machine(engine)} takes its place"

    def _stall_worker(self, draw: random.Random) -> str:
        name = draw.choice(list(self._rig.workers))
        pid = self._rig.signal(name, SIGSTOP)
        seconds = self._rig.settings.lease_seconds + BRIEF_SECONDS
        self._last(FaultKind.WORKER_STALLED, seconds, lambda: send(pid, SIGCONT))
        return f"{name} for {seconds:g} s"

    def _split_dispatchers(self, draw: random.Random) -> str:
        """Stop one amid its work, make both lose the lock, and have a third dispatch without it."""
        name = draw.choice(DISPATCHERS)
        pid = self._rig.signal(name, SIGSTOP)
        self._last(FaultKind.DISPATCHERS_SPLIT, BRIEF_SECONDS, lambda: send(pid, SIGCONT))
        self._rig.postgres.execute(CUT_SESSIONS.format("dispatcher"))
        return f"{name} is stopped, another dispatches {self._dispatch_without_lock()} jobs without the lock"

    def _dispatch_without_lock(self) -> int:
        settings = self._rig.settings
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
            with suppress(ThothyError):  # Redis may be away
                for dispatch in made:
                    broker.publish(dispatch.ordinary, dispatch.urgent, engine=dispatch.engine)
            return sum(len(dispatch.hints) for dispatch in made)
        finally:
            broker.close()
            engine.dispose()

    # Redis.

    def _kill_redis(self, _: random.Random) -> str:
        lost = self._count_messages()
        self._rig.valkey.process.kill()
        self._rig.valkey.process.start()
        return f"messages lost: {lost}"

    def _flush_redis(self, _: random.Random) -> str:
        lost = self._count_messages()
        with self._rig.redis() as redis:
            redis.flushall()
        return f"messages lost: {lost}"

    def _cut_redis(self, _: random.Random) -> str:
        with self._rig.redis() as redis:
            return f"{redis.client_kill_filter(_type='normal', skipme=True)} connections"

    def _fill_redis_disk(self, _: random.Random) -> str:
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
            with self._rig.redis() as redis:
                redis.config_set("save", "")

        self._last(FaultKind.REDIS_DISK_FULL, LASTING_SECONDS, undo)
        return f"writes are refused for {LASTING_SECONDS:g} s"

    def _fill_redis_memory(self, _: random.Random) -> str:
        with self._rig.redis() as redis:
            redis.config_set("maxmemory", 1)

        def undo() -> None:
            with self._rig.redis() as redis:
                redis.config_set("maxmemory", 0)

        self._last(FaultKind.REDIS_MEMORY_FULL, LASTING_SECONDS, undo)
        return f"what takes memory is refused for {LASTING_SECONDS:g} s"

    def _count_messages(self) -> int:
        settings = self._rig.settings
        try:
            with self._rig.redis() as redis:
                lost = sum(count_waiting(redis, settings)) + int(str(redis.hlen(f"{settings.queue_prefix}unacked")))
        except RedisError:
            return 0
        self.lost_messages += lost
        return lost

    # Postgres.

    def _restart_postgres(self, _: random.Random) -> str:
        self._rig.postgres.process.stop()
        self._rig.start_postgres()
        return "in an orderly way"

    def _crash_postgres(self, _: random.Random) -> str:
        self._rig.crash_postgres()
        self._rig.start_postgres()
        return "without a checkpoint"

    def _take_postgres_away(self, _: random.Random) -> str:
        seconds, self._away_seconds = self._away_seconds, SHORT_AWAY
        self._rig.postgres.process.stop()
        self._last(FaultKind.POSTGRES_AWAY, seconds, self._rig.start_postgres)
        return f"for {seconds:g} s"

    def _cut_postgres(self, _: random.Random) -> str:
        with suppress(psycopg.OperationalError):
            self._rig.postgres.execute(CUT_SESSIONS.format("%"))
        return "all of the service"

    # Network and clock.

    def _slow_network(self, _: random.Random) -> str:
        proxies = self._rig.proxies
        proxies.delay = DELAY
        self._last(FaultKind.NETWORK_SLOW, LASTING_SECONDS, lambda: setattr(proxies, "delay", 0.0))
        return f"of one worker, for {LASTING_SECONDS:g} s"

    def _cut_network(self, _: random.Random) -> str:
        self._rig.proxies.cut()
        return "of one worker"

    def _skew_clock(self, draw: random.Random) -> str:
        seconds = draw.choice(SKEWS)
        self._rig.clock.set(seconds)
        self._last(FaultKind.CLOCK_SKEWED, LASTING_SECONDS, lambda: self._rig.clock.set(0))
        return f"of one worker by {seconds:+d} s, for {LASTING_SECONDS:g} s"
