"""`Fleet`: the queue's engines that this process reaches, and places at them for interactive requests.

Interactive requests go past the queue. They have a share of each engine's rows, so that neither they nor the queue's
jobs starve the other; beyond it they wait here, first come, first served.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.serving.client import EngineClient, connect
from thothy_ai.errors import DatabaseError
from thothy_ai.http.errors import RETRY_SECONDS, ApiError

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
ANSWER_SECONDS = 5.0  # for an engine to say which session it is
MAX_WAITING = 1_000  # requests per engine, beyond its places
REMEMBERED_PREFIXES = 10_000


@dataclass(frozen=True, slots=True)
class Known:
    """An engine that takes requests: its session, where it listens, the models that it serves by all their names, and
    how many sequences it runs at once.
    """

    session_id: str
    url: str
    models: frozenset[str]
    capacity: int


class Directory(Protocol):
    """Knows the engines of all machines; which of them can be reached from this one, the fleet finds out."""

    async def look(self) -> Collection[Known]:
        """Those that take requests now; raises `DatabaseError` if that cannot be found out."""


NOTHING = Known("", "", frozenset(), 0)  # what is known of an engine that is not registered


@dataclass(slots=True)
class Engine:
    """What listens at a URL. Of interactive requests, it may run `limit` sequences at once, and runs `running`."""

    url: str
    client: EngineClient
    known: Known = NOTHING
    limit: int = 1
    running: int = 0
    queue: dict[asyncio.Future[None], int] = field(default_factory=dict)  # sequences that wait, first come first
    vocabulary: dict[str, tuple[bytes, ...]] = field(default_factory=dict)  # of its last session, by its id

    @property
    def reached(self) -> bool:
        """Whether it can be asked now."""
        return self.client.connected and self.known is not NOTHING

    @property
    def load(self) -> float:
        """Sequences that run or wait here, by those that may run."""
        return (self.running + sum(self.queue.values())) / self.limit

    async def session(self) -> str:
        """The id of the session that answers; empty if none does."""
        try:
            return (await self.client.info()).session_id
        except EngineError:
            return ""

    @asynccontextmanager
    async def place(self, sequences: int) -> AsyncIterator[None]:
        """Wait until it may run so many more sequences, and have them for the block. More than all count as all."""
        taken = min(sequences, self.limit)
        if self.queue or self.running + taken > self.limit:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.queue[turn] = taken
            try:
                await turn
            except asyncio.CancelledError:
                if self.queue.pop(turn, None) is None:  # its turn had come
                    self.running -= taken
                self.admit()
                raise
        else:
            self.running += taken
        try:
            yield
        finally:
            self.running -= taken
            self.admit()

    def admit(self) -> None:
        """Give free places to those that have waited longest."""
        while self.queue:
            turn, taken = next(iter(self.queue.items()))
            if self.running and self.running + taken > self.limit:
                return
            del self.queue[turn]
            self.running += taken
            turn.set_result(None)

    async def token_bytes(self) -> tuple[bytes, ...]:
        """The bytes of each token of its model, asked for once per session."""
        session = (await self.client.info()).session_id
        if session not in self.vocabulary:
            self.vocabulary = {session: await self.client.vocabulary()}
        return self.vocabulary[session]


class Fleet:
    """Owns the connections. `share` is the part of each engine's rows that interactive requests may take."""

    def __init__(self, directory: Directory, share: float, token: str | None = None) -> None:
        self._directory, self._share, self._token = directory, share, token
        self._engines: dict[str, Engine] = {}  # by URL
        self._warm: OrderedDict[tuple[str, str], str] = OrderedDict()  # URLs, by model and beginning of a prompt
        self._task: asyncio.Task[None] | None = None

    @property
    def engines(self) -> list[Engine]:
        """Those that can be reached now."""
        return [engine for engine in self._engines.values() if engine.reached]

    @property
    def models(self) -> list[str]:
        """The names of all models that can be asked now."""
        return sorted({model for engine in self.engines for model in engine.known.models})

    async def start(self) -> None:
        """Connect to what is there, and look again from then on."""
        await self._try_to_look()
        self._task = asyncio.create_task(self._keep_looking(), name="fleet")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        for engine in self._engines.values():
            await engine.client.close()

    @asynccontextmanager
    async def place(self, model: str, beginning: str, sequences: int) -> AsyncIterator[Engine]:
        """A place at an engine with this model: at the one that had a prompt with this beginning, unless another one
        has less to do. ApiError if there is none.
        """
        engine = self._choose(model, beginning)
        if len(engine.queue) >= MAX_WAITING:
            raise ApiError(
                429, f"{MAX_WAITING:,} requests wait already", code="too_many_requests", retry_after=RETRY_SECONDS
            )
        async with engine.place(sequences):
            yield engine

    def _choose(self, model: str, beginning: str) -> Engine:
        reached = self.engines
        if not reached:
            raise ApiError(503, "no engine is ready", code="engine_unavailable", retry_after=RETRY_SECONDS)
        able = [engine for engine in reached if model in engine.known.models]
        if not able:
            raise ApiError(
                404,
                f"the model {model!r} does not exist; there are {', '.join(self.models)}",
                code="model_not_found",
                param="model",
            )
        key = (model, beginning)
        warm = self._warm.get(key)
        chosen = min(able, key=lambda engine: (engine.load >= 1.0, engine.url != warm, engine.load))
        self._warm[key] = chosen.url
        self._warm.move_to_end(key)
        if len(self._warm) > REMEMBERED_PREFIXES:
            self._warm.popitem(last=False)
        return chosen

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._try_to_look()

    async def _try_to_look(self) -> None:
        """Keep what is known if it fails: the next look may succeed."""
        try:
            await self._look()
        except DatabaseError as error:
            log.warning("engines cannot be looked up: %s", error)

    async def _look(self) -> None:
        found: dict[str, dict[str, Known]] = {}  # by URL and session: machines and containers may use the same paths
        for known in await self._directory.look():
            found.setdefault(known.url, {})[known.session_id] = known
        for url, sessions in found.items():
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    if (engine := self._engines.get(url)) is None:
                        engine = self._engines[url] = Engine(url, connect(url, self._token))
                    await engine.client.start()
                    engine.known = sessions.get(await engine.session(), NOTHING)
            except (EngineError, TimeoutError) as error:
                log.warning("the engine at %s is left out: %s", url, error or "it does not answer")
                continue
            if engine.known is not NOTHING:
                engine.limit = max(1, round(self._share * engine.known.capacity))
                engine.admit()
        for url in self._engines.keys() - found.keys():
            gone = self._engines[url]
            gone.known = NOTHING
            if not gone.load:  # it finishes what it has
                await self._engines.pop(url).client.close()
