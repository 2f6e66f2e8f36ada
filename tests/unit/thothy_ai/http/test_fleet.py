"""Places at engines: the warm one first, any other as soon as it is free, and nobody is overtaken for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.patience import PATIENCE
from thothy_ai.errors import DatabaseUnreachableError
from thothy_ai.http import engines
from thothy_ai.http.engines import Fleet, Known
from thothy_ai.http.errors import ApiError

HERE = {"a": Known("a", "a", frozenset({"m", "alias"}), 2), "b": Known("b", "b", frozenset({"m"}), 2)}
BAD_URL = "tcp://nowhere"
OTHER = {"c": Known("c", "c", frozenset({"other"}), 1)}


class Client:
    """Of an engine that answers."""

    connected = True

    def __init__(self, url: str, token: str | None) -> None:
        self.url, self.token = url, token
        if url == BAD_URL:
            raise OSError("there is no such machine")

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def info(self) -> Any:
        return SimpleNamespace(session_id=self.url)

    async def adapters(self) -> Any:
        return [SimpleNamespace(name="acme")]


class Engines:
    """A directory, which a test changes."""

    def __init__(self, known: dict[str, Known]) -> None:
        self.known = dict(known)
        self.fails: Exception | None = None
        self.failed = asyncio.Event()
        self.looks = 0
        self.answers = asyncio.Event()
        self.answers.set()

    async def look(self) -> Collection[Known]:
        self.looks += 1
        await asyncio.sleep(0)
        await self.answers.wait()
        if self.fails is not None:
            self.failed.set()
            raise self.fails
        return self.known.values()


@asynccontextmanager
async def fleet(known: dict[str, Known]) -> AsyncIterator[tuple[Fleet, Engines]]:
    directory = Engines(known)
    made = Fleet(directory, 1.0)
    await made.start()
    yield made, directory
    await made.close()


class Asked:
    """A request for a place: once it has one, `engine` says where."""

    def __init__(self, of: Fleet, model: str = "m", beginning: str = "", *numbers: int) -> None:
        self.engine: str | None = None
        self.taken = 0
        self._leave = asyncio.Event()
        self.task = asyncio.create_task(self._run(of, model, beginning, *(numbers or (1,))))

    async def _run(self, of: Fleet, *wanted: Any) -> None:
        async with of.place(*wanted) as place:
            self.engine, self.taken = place.engine.url, place.taken
            await self._leave.wait()

    async def leave(self) -> None:
        self._leave.set()
        await self.task
        await settled()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def asked(of: Fleet, *wanted: Any) -> Asked:
    made = Asked(of, *wanted)
    await settled()
    return made


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    def run(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(engines, "connect", Client)
        monkeypatch.setattr(engines, "LOOK_SECONDS", 0.01)
        monkeypatch.setattr(engines, "LOOK_INTERVAL", 0.0)
        asyncio.run(test())

    run.__doc__ = test.__doc__
    return run


@on_loop
async def test_a_name_of_an_adapter_takes_a_place_with_it() -> None:
    known = Known("a", "a", frozenset({"m", "acme", "house"}), 2, model="m", adapters={"acme": "acme", "house": "acme"})
    async with fleet({"a": known}) as (of, _):
        for name, adapter, parent in (("m", "", None), ("acme", "acme", "m"), ("house", "acme", "m")):
            async with of.place(name, "", 1) as place:
                assert place.adapter == adapter
            assert of.parent(name) == parent


@on_loop
async def test_those_who_ask_for_an_unknown_name_share_a_look() -> None:
    async with fleet(HERE) as (of, directory):
        await of._looks.stop()
        before = directory.looks
        refused = await asyncio.gather(
            *(Asked(of, f"unknown {number}").task for number in range(10_000)), return_exceptions=True
        )
        assert directory.looks - before <= 2
        assert {each.status for each in refused if isinstance(each, ApiError)} == {404}
        directory.known |= OTHER
        known = [await asked(of, "other") for _ in range(2)]
        await settled()
        assert [each.engine for each in known] == ["c", None]
        for each in known:
            await each.leave()


@on_loop
async def test_a_look_that_was_cancelled_is_none() -> None:
    async with fleet(HERE) as (of, directory):
        await of._looks.stop()
        directory.answers.clear()
        first, cancelled, last = [await asked(of, name) for name in ("unknown", "nobody", "other")]
        directory.answers.set()
        await asyncio.wait([first.task])
        directory.answers.clear()
        await settled()
        cancelled.task.cancel()
        directory.known |= OTHER
        directory.answers.set()
        async with asyncio.timeout(PATIENCE):
            while last.engine is None and not last.task.done():  # noqa: ASYNC110 - nothing says so
                await asyncio.sleep(0)
        assert last.engine == "c"
        await last.leave()


@on_loop
async def test_while_nothing_can_be_looked_up_no_model_is_said_not_to_exist() -> None:
    async with fleet(HERE) as (of, directory):
        await of._looks.stop()
        before, directory.fails = directory.looks, DatabaseUnreachableError("Postgres is away")
        refused = await asyncio.gather(*(Asked(of, "other").task for _ in range(50)), return_exceptions=True)
        assert {each.status for each in refused if isinstance(each, ApiError)} == {503}
        assert directory.looks - before <= 2
        directory.fails = None
        [unknown] = await asyncio.gather(Asked(of, "other").task, return_exceptions=True)
        assert isinstance(unknown, ApiError)
        assert unknown.status == 404


@on_loop
async def test_looks_for_unknown_names_are_some_time_apart() -> None:
    async with fleet(HERE) as (of, directory):
        await of._looks.stop()
        before, engines.LOOK_INTERVAL = directory.looks, 1_000.0
        waiting = [await asked(of, f"unknown {number}") for number in range(5)]
        assert directory.looks == before
        for each in waiting:
            each.task.cancel()
        await asyncio.wait([each.task for each in waiting])


@on_loop
async def test_engines_are_asked_at_the_same_time() -> None:
    both = asyncio.Barrier(2)

    class Together(Client):
        async def start(self) -> None:
            if not both.broken:
                await both.wait()

    engines.connect = Together  # type: ignore[assignment]
    async with fleet(HERE) as (of, _):
        assert len(of.engines) == 2


@on_loop
async def test_the_warm_engine_is_preferred_while_it_has_room() -> None:
    async with fleet(HERE) as (of, _), AsyncExitStack() as leaving:
        first = await asked(of, "m", "p")
        again = await asked(of, "m", "p")
        third = await asked(of, "m", "p")
        assert first.engine == again.engine != third.engine
        for each in (first, again, third):
            leaving.push_async_callback(each.leave)


@on_loop
async def test_who_waits_goes_to_the_engine_that_is_free_first() -> None:
    async with fleet(HERE) as (of, _):
        running = [await asked(of, "m", "p") for _ in range(4)]
        waiting = [await asked(of, "m", "p") for _ in range(2)]
        assert [each.engine for each in waiting] == [None, None]
        cold = running[3]
        assert cold.engine != running[0].engine
        await cold.leave()
        assert [each.engine for each in waiting] == [cold.engine, None]
        await running[0].leave()
        assert waiting[1].engine == running[0].engine
        for each in (*running[1:3], *waiting):
            await each.leave()


@on_loop
async def test_one_that_needs_much_is_not_overtaken_for_ever() -> None:
    async with fleet(HERE) as (of, _):
        running = [await asked(of, "m", "p") for _ in range(4)]
        large, small, alias = await asked(of, "m", "", 2), await asked(of, "m"), await asked(of, "alias")
        await running[0].leave()
        await running[2].leave()  # a place at each: not enough for two
        assert (large.engine, small.engine, alias.engine) == (None, None, None)
        await running[3].leave()
        assert large.engine == running[3].engine
        assert small.engine == running[1].engine
        await running[1].leave()
        for each in (large, small):
            await each.leave()
        assert alias.engine == "a"
        await alias.leave()


@on_loop
async def test_no_more_run_than_may() -> None:
    async with fleet({"a": Known("a", "a", frozenset({"m"}), 5)}) as (of, _):
        many = await asked(of, "m", "", 2, 64)
        assert many.taken == 4  # two of its prompts at once
        small, other = await asked(of), await asked(of)
        assert (small.engine, other.engine) == ("a", None)
        with pytest.raises(ApiError) as refused:
            async with of.place("m", "", 6):
                pass
        assert (refused.value.status, refused.value.param) == (400, "n")
        for each in (many, small, other):
            await each.leave()


@on_loop
async def test_models_do_not_wait_for_each_other() -> None:
    async with fleet(HERE | OTHER) as (of, _):
        running = [await asked(of) for _ in range(4)]
        waiting = await asked(of)
        other = await asked(of, "other")
        assert (waiting.engine, other.engine) == (None, "c")
        for each in (*running, waiting, other):
            await each.leave()


@on_loop
async def test_who_leaves_gives_a_place_back_that_had_just_come() -> None:
    async with fleet(OTHER) as (of, _):
        running, waiting, last = await asked(of, "other"), await asked(of, "other"), await asked(of, "other")
        running._leave.set()
        await running.task  # the next one has its turn, and does not know yet
        waiting.task.cancel()
        await asyncio.wait([waiting.task])
        await settled()
        assert last.engine == "c"
        await last.leave()


@on_loop
async def test_nobody_waits_for_an_engine_that_is_gone() -> None:
    async with fleet(HERE | OTHER) as (of, directory):
        running, waiting = await asked(of, "other"), await asked(of, "other")
        del directory.known["c"]
        with pytest.raises(ApiError) as gone:
            await waiting.task
        assert (gone.value.status, gone.value.code) == (404, "model_not_found")
        directory.known.clear()
        await running.leave()


@on_loop
async def test_nobody_waits_for_an_engine_that_went_while_postgres_is_away() -> None:
    async with fleet(OTHER) as (of, directory):
        running, waiting = await asked(of, "other"), await asked(of, "other")
        directory.fails = DatabaseUnreachableError("Postgres is away")
        of.engines[0].client.connected = False  # type: ignore[misc]
        with pytest.raises(ApiError) as gone:
            await waiting.task
        assert (gone.value.status, gone.value.code) == (503, "engine_unavailable")
        await running.leave()


@on_loop
async def test_looks_go_on_whatever_one_raises() -> None:
    async with fleet(HERE) as (of, directory):
        directory.fails = RuntimeError("nobody expected this")
        await directory.failed.wait()
        assert of.models == ["alias", "m"]
        directory.known |= OTHER
        directory.fails = None
        async with asyncio.timeout(PATIENCE):
            while "other" not in of.models:  # noqa: ASYNC110 - nothing says so
                await asyncio.sleep(0.001)


@on_loop
async def test_an_engine_that_cannot_be_asked_does_not_hide_the_others() -> None:
    async with fleet({"bad": Known("bad", BAD_URL, frozenset({"bad"}))} | HERE) as (of, _):
        assert of.models == ["alias", "m"]


@on_loop
async def test_each_engine_is_given_its_own_token() -> None:
    known = {name: Known(name, name, frozenset({"m"}), 1, f"secret of {name}") for name in ("a", "b")}
    async with fleet(known) as (of, _):
        assert [engine.client.token for engine in of.engines] == ["secret of a", "secret of b"]  # type: ignore[attr-defined]
        assert "secret" not in repr(of.engines[0].known)


@on_loop
async def test_the_number_that_waits_is_bounded() -> None:
    engines.MAX_WAITING, before = 1, engines.MAX_WAITING
    try:
        async with fleet(OTHER) as (of, _):
            running, waiting = await asked(of, "other"), await asked(of, "other")
            with pytest.raises(ApiError) as refused:
                async with of.place("other", "", 1):
                    pass
            assert (refused.value.status, refused.value.code) == (429, "too_many_requests")
            await running.leave()
            await waiting.leave()
    finally:
        engines.MAX_WAITING = before
