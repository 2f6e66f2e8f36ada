"""The lane: many share, a suspect is alone."""

from __future__ import annotations

import asyncio

from thothy_ai.worker.lane import Lane


def test_a_suspect_runs_alone_and_the_others_before_and_after_it() -> None:
    async def scenario() -> list[str]:
        lane, log = Lane(), []
        first_may_end = asyncio.Event()

        async def shared(name: str, until: asyncio.Event | None = None) -> None:
            async with lane.shared():
                log.append(f"{name} in")
                if until is not None:
                    await until.wait()
                log.append(f"{name} out")

        async def alone() -> None:
            async with lane.alone():
                log.append("suspect in")
                for _ in range(5):
                    await asyncio.sleep(0)
                log.append("suspect out")

        async with asyncio.TaskGroup() as group:
            group.create_task(shared("first", first_may_end))
            await asyncio.sleep(0)
            group.create_task(alone())
            await asyncio.sleep(0)
            group.create_task(shared("second"))
            group.create_task(shared("third"))
            for _ in range(5):
                await asyncio.sleep(0)
            assert log == ["first in"]
            first_may_end.set()
        return log

    log = asyncio.run(scenario())
    assert log[:4] == ["first in", "first out", "suspect in", "suspect out"]
    assert sorted(log[4:]) == ["second in", "second out", "third in", "third out"]


def test_a_suspect_that_gives_up_waiting_lets_the_others_in() -> None:
    async def scenario() -> None:
        lane = Lane()

        async def alone() -> None:
            async with lane.alone():
                raise AssertionError("it must not get in")

        async with lane.shared():
            waiting = asyncio.create_task(alone())
            await asyncio.sleep(0)
            blocked = asyncio.create_task(lane.shared().__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            async with asyncio.timeout(1):
                await blocked

    asyncio.run(scenario())
