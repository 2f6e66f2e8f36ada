"""`FreeJudges`: which process a task gets, and in which order tasks that wait get one."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from tests.support.loops import on_a_loop
from thothy_ai.plans import free_judges
from thothy_ai.plans.free_judges import FreeJudges


async def waiting(free: FreeJudges[str], *sources: str) -> list[asyncio.Task[str]]:
    """Tasks of these sources, which have begun to wait in this order."""
    tasks = [asyncio.create_task(free.get(source)) for source in sources]
    await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    return tasks


@on_a_loop
async def test_a_source_comes_back_to_its_process() -> None:
    free = FreeJudges[str]()
    free.put("one")
    free.put("two")
    first = await free.get("a")
    second = await free.get("b")
    assert {first, second} == {"one", "two"}
    for order in ((first, second), (second, first)):
        for process in order:
            free.put(process)
        assert await free.get("b") == second
        assert await free.get("a") == first
    assert not free


@on_a_loop
async def test_if_its_process_is_busy_another_takes_it() -> None:
    free = FreeJudges[str]()
    free.put("one")
    assert await free.get("a") == "one"
    free.put("two")
    assert await free.get("a") == "two"
    for process in ("two", "one"):
        free.put(process)
    assert await free.get("a") == "two", "the last one"


@on_a_loop
async def test_tasks_without_a_source_get_the_process_that_was_freed_last() -> None:
    free = FreeJudges[str]()
    free.put("one")
    free.put("two")
    assert [await free.get(), await free.get()] == ["two", "one"]


@on_a_loop
async def test_a_freed_process_goes_to_the_oldest_task_of_its_sources_and_otherwise_to_the_oldest() -> None:
    free = FreeJudges[str]()
    free.put("one")
    assert await free.get("a") == "one"
    new, known, too = await waiting(free, "new", "a", "a")
    free.put("one")
    assert await known == "one"
    free.put("two")
    assert await new == "two"
    free.put("two")
    assert await too == "two"


@on_a_loop
async def test_no_task_lets_others_go_first_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_judges, "_MAX_PASSED", 3)
    free = FreeJudges[str]()
    free.put("one")
    await free.get("a")
    new, *others = await waiting(free, "new", *["a"] * 5)
    for _ in range(4):
        free.put("one")
    assert await new == "one"
    assert [each.done() for each in others] == [True] * 3 + [False] * 2
    for _ in range(2):
        free.put("one")
    await asyncio.gather(*others)


@on_a_loop
async def test_a_cancelled_task_takes_no_process() -> None:
    free = FreeJudges[str]()
    first, second, third = await waiting(free, "a", "b", "c")
    first.cancel()
    free.put("one")  # before the task has noticed
    assert await second == "one"
    third.cancel()
    await asyncio.sleep(0)
    free.put("one")
    assert len(free) == 1


@on_a_loop
async def test_a_task_that_is_cancelled_when_it_gets_a_process_gives_it_back() -> None:
    free = FreeJudges[str]()
    [task] = await waiting(free, "a")
    free.put("one")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert await free.get() == "one"


@on_a_loop
async def test_sources_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_judges, "_MAX_SOURCES", 1)
    free = FreeJudges[str]()
    for process in ("one", "two"):
        free.put(process)
    b, a = await free.get("b"), await free.get("a")
    free.put(b)
    free.put(a)
    assert await free.get("b") == a, "as if it were new"
