"""`Fleet`: the queue's engines that this process can reach, and their places for interactive requests.

Interactive requests go past the queue. They have a share of each engine's rows, so that they and the queue's jobs do
not starve each other. Requests beyond that share wait here, first come, first served, for any engine with their model.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.serving.client import EngineClient, connect
from thothy_ai.errors import DatabaseError
from thothy_ai.http.errors import RETRY_SECONDS, ApiError
from thothy_ai.http.repeated import Repeated

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
LOOK_INTERVAL = 0.5  # seconds between two looks, however many unknown names are asked for
ANSWER_SECONDS = 5.0  # for an engine to identify its session
MAX_WAITING = 1_000  # requests for each engine, beyond its places
REMEMBERED_PREFIXES = 10_000


@dataclass(frozen=True, slots=True)
class Known:
    """An engine that takes requests: its session, its address, all names of the models that it serves, and how many
    sequences it runs at once. Without a session, it is any engine that answers at the address. `token` authenticates on
    a TCP port. `adapters` maps names to adapters of `model`. An engine that is not `ready` is loading, ending or
    paused.
    """

    session_id: str
    url: str
    models: frozenset[str] = frozenset()
    capacity: int = 1
    token: str | None = field(default=None, repr=False)
    model: str = ""
    adapters: Mapping[str, str] = field(default_factory=dict)
    ready: bool = True


class Directory(Protocol):
    """Lists the engines of all machines. The fleet finds out which of them it can reach."""

    async def look(self) -> Collection[Known]:
        """The live engines. Raises `DatabaseError` if the database does not answer."""


NOTHING = Known("", "")  # of an engine that is not registered


@dataclass(slots=True)
class Engine:
    """The engine at a URL. Interactive requests run `running` sequences there, of at most `limit`."""

    url: str
    client: EngineClient
    known: Known = NOTHING
    limit: int = 1
    running: int = 0
    vocabulary: dict[str, tuple[bytes, ...]] = field(default_factory=dict)  # by session id; only the last is kept

    @property
    def reached(self) -> bool:
        """Whether it takes requests now."""
        return self.client.connected and self.known is not NOTHING

    @property
    def load(self) -> float:
        """Running sequences as a share of the limit."""
        return self.running / self.limit

    async def token_bytes(self) -> tuple[bytes, ...]:
        """The bytes of each token of its model, asked for once per session."""
        session = (await self.client.info()).session_id
        if session not in self.vocabulary:
            self.vocabulary = {session: await self.client.vocabulary()}
        return self.vocabulary[session]


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """The demand of a waiting request: `sequences` for each of its prompts."""

    model: str
    beginning: str
    sequences: int
    prompts: int

    def places(self, engine: Engine) -> int:
        """How many sequences it takes at this engine: as many prompts at once as fit its limit."""
        return self.sequences * min(self.prompts, engine.limit // self.sequences)


@dataclass(frozen=True, slots=True)
class TakenPlace:
    """Sequences of an engine that a request has taken, and the request's adapter, or an empty name."""

    engine: Engine
    taken: int
    adapter: str = ""


class Fleet:
    """Owns the connections, and the queue of requests that wait for a place. `share` is the part of each engine's rows
    that interactive requests may take.
    """

    def __init__(self, directory: Directory, share: float) -> None:
        self._directory, self._share = directory, share
        self._engines: dict[str, Engine] = {}  # by URL
        self._warm: OrderedDict[tuple[str, str], str] = OrderedDict()  # URLs, by model and beginning of a prompt
        self._queue: dict[asyncio.Future[TakenPlace], WaitingRequest] = {}  # first come, first served
        self._awaited: frozenset[str] = frozenset()  # names served only by engines that are not ready
        self._looks = Repeated("the look for engines", LOOK_SECONDS, self._look_again)
        self._looking, self._looked_at = asyncio.Lock(), float("-inf")
        self._blind = False  # whether the last look failed

    @property
    def engines(self) -> list[Engine]:
        """The engines that can be reached now."""
        return [engine for engine in self._engines.values() if engine.reached]

    @property
    def models(self) -> list[str]:
        """The names of all models that can be asked now."""
        return sorted({model for engine in self.engines for model in engine.known.models})

    def parent(self, model: str) -> str | None:
        """The model of the adapter with this name; None if the name is a model's."""
        serving = (engine.known for engine in self.engines if model in engine.known.models)
        return next((known.model for known in serving if model in known.adapters), None)

    async def start(self) -> None:
        """Connect to the known engines, and keep looking for others."""
        await self._looks.start()

    async def close(self) -> None:
        await self._looks.stop()
        for engine in self._engines.values():
            await engine.client.close()

    async def look_for(self, model: str) -> None:
        """Look at once if no known engine serves this model: a new one may have come since the last look."""
        if not any(model in engine.known.models for engine in self.engines):
            await self.look()

    async def look(self) -> None:
        """Look now. Concurrent callers share one look."""
        asked_at = time.monotonic()
        async with self._looking:
            if self._looked_at < asked_at:
                await asyncio.sleep(self._looked_at + LOOK_INTERVAL - time.monotonic())
                await self._look_and_admit()

    @asynccontextmanager
    async def place(self, model: str, beginning: str, sequences: int, prompts: int = 1) -> AsyncIterator[TakenPlace]:
        """A place at an engine with this model: the one that had a prompt with this beginning, if it has room,
        otherwise the first with room. The place can be for fewer prompts than wanted, but at least one, each of
        `sequences`. Raises `ApiError` if no engine can run it.
        """
        waiting = WaitingRequest(model, beginning, sequences, prompts)
        await self.look_for(model)
        if len(self._queue) >= MAX_WAITING * len(self._able(waiting)):
            says = f"{len(self._queue):,} requests wait already"
            raise ApiError(429, says, code="too_many_requests", retry_after=RETRY_SECONDS)
        turn: asyncio.Future[TakenPlace] = asyncio.get_running_loop().create_future()
        self._queue[turn] = waiting
        self._admit()
        try:
            place = await turn
        except BaseException:
            self._queue.pop(turn, None)
            if not turn.cancelled() and turn.exception() is None:  # its turn had come
                turn.result().engine.running -= turn.result().taken
            self._admit()
            raise
        try:
            yield place
        finally:
            place.engine.running -= place.taken
            self._admit()

    def _admit(self) -> None:
        """Give free places to the requests that have waited longest. A request that needs more places than are free
        reserves the engines of its model: otherwise those behind it would take each free place before it has enough.
        """
        kept: set[str] = set()
        for turn, waiting in list(self._queue.items()):
            engines = [engine for engine in self.engines if engine.url not in kept]
            if not engines:
                return
            able = [
                engine
                for engine in engines
                if waiting.model in engine.known.models and waiting.sequences <= engine.limit
            ]
            free = [engine for engine in able if engine.running + waiting.places(engine) <= engine.limit]
            if turn.done():  # it was given up
                del self._queue[turn]
            elif free:
                del self._queue[turn]
                engine = self._warmest(free, waiting)
                adapter = engine.known.adapters.get(waiting.model, "")
                place = TakenPlace(engine, waiting.places(engine), adapter)
                engine.running += place.taken
                turn.set_result(place)
            else:
                kept |= {engine.url for engine in able}

    def _able(self, waiting: WaitingRequest) -> list[Engine]:
        """The engines with the request's model that can run its sequences. Raises `ApiError` if there are none."""
        reached = self.engines
        if not reached:
            raise ApiError(503, "no engine is ready", code="engine_unavailable", retry_after=RETRY_SECONDS)
        serving = [engine for engine in reached if waiting.model in engine.known.models]
        if not serving and (self._blind or waiting.model in self._awaited):
            says = f"no engine that is known to be ready has the model {waiting.model!r}"
            raise ApiError(503, says, code="engine_unavailable", retry_after=RETRY_SECONDS)
        if not serving:
            says = f"the model {waiting.model!r} does not exist; there are {', '.join(self.models)}"
            raise ApiError(404, says, code="model_not_found", param="model")
        if able := [engine for engine in serving if waiting.sequences <= engine.limit]:
            return able
        most = max(engine.limit for engine in serving)
        says = f"n: an engine writes at most {most:,} texts at once for requests over HTTP, not {waiting.sequences:,}"
        raise ApiError(400, says, code="invalid_value", param="n")

    def _warmest(self, free: Sequence[Engine], waiting: WaitingRequest) -> Engine:
        """The engine that had a prompt with this beginning, otherwise the least loaded one."""
        key = (waiting.model, waiting.beginning)
        warm = self._warm.get(key)
        chosen = min(free, key=lambda engine: (engine.url != warm, engine.load))
        self._warm[key] = chosen.url
        self._warm.move_to_end(key)
        if len(self._warm) > REMEMBERED_PREFIXES:
            self._warm.popitem(last=False)
        return chosen

    async def _look_again(self) -> None:
        async with self._looking:
            await self._look_and_admit()

    async def _look_and_admit(self) -> None:
        """Look for engines, then admit waiting requests. If the look fails, the known engines stay, although some may
        be gone.
        """
        began = time.monotonic()
        try:
            await self._look()
            self._blind = False
        except DatabaseError as error:
            self._blind = True
            log.warning("engines cannot be looked up: %s", error)
        finally:
            for turn, waiting in self._queue.items():
                try:
                    self._able(waiting)
                except ApiError as error:  # no engine serves this model any more: stop waiting
                    if not turn.done():
                        turn.set_exception(error)
            self._admit()
        self._looked_at = began  # only now: a cancelled look does not count

    async def _look(self) -> None:
        found: dict[str, dict[str, Known]] = {}  # by URL and session: machines and containers may use the same paths
        living = await self._directory.look()
        self._awaited = frozenset().union(*(known.models for known in living if not known.ready))
        for known in living:
            if known.ready:
                found.setdefault(known.url, {})[known.session_id] = known
        await asyncio.gather(*(self._ask(url, sessions) for url, sessions in found.items()))
        for url in self._engines.keys() - found.keys():
            gone = self._engines[url]
            gone.known = NOTHING
            if not gone.running:  # a running engine finishes its requests first
                await self._engines.pop(url).client.close()

    async def _ask(self, url: str, sessions: Mapping[str, Known]) -> None:
        """Connect to the engine at a URL, and record what is known of it."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                if (engine := self._engines.get(url)) is None:
                    token = next(iter(sessions.values())).token
                    engine = self._engines[url] = Engine(url, connect(url, token))
                await engine.client.start()
                engine.known = await self._known(engine, sessions)
        except Exception as error:  # noqa: BLE001  whatever is wrong with one, the others are asked
            log.warning("the engine at %s is left out: %s", url, str(error) or "it does not answer")
        else:
            engine.limit = max(1, round(self._share * engine.known.capacity))

    async def _known(self, engine: Engine, sessions: Mapping[str, Known]) -> Known:
        """What is known of the session that answers."""
        try:
            info = await engine.client.info()
        except EngineError:
            return NOTHING
        if "" in sessions:
            has = (await engine.client.stats()).adapters.loaded  # an engine of 0.1 does not know the question
            adapters = {each.name: each.name for each in await engine.client.adapters()} if has else {}
            return Known(
                info.session_id,
                engine.url,
                frozenset({info.model_name, *adapters}),
                info.capacity or sessions[""].capacity,
                model=info.model_name,
                adapters=adapters,
            )
        known = sessions.get(info.session_id, NOTHING)
        if known.adapters:  # the records still have an unloaded adapter for some seconds
            loaded = {each.name for each in await engine.client.adapters()}
            gone = {name for name, adapter in known.adapters.items() if adapter not in loaded}
            adapters = {name: adapter for name, adapter in known.adapters.items() if name not in gone}
            known = replace(known, models=known.models - gone, adapters=adapters)
        return known
