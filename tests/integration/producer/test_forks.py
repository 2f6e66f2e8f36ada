"""A producer that was used before a fork: by the child, by both, and closed by either."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import traceback
from collections.abc import Callable

import pytest

from tests.support.echo_kind import Echo
from tests.support.queue_bench import PATIENCE, Queue
from thothy_ai.errors import ResultTimeoutError
from thothy_ai.producer import AsyncProducer, Producer, snapshot
from thothy_ai.producer import listener as listener_module

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def child(work: Callable[[], object]) -> int:
    """Run it in a forked process; returns its id."""
    if (pid := os.fork()) == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - printed, and told by the exit code
            traceback.print_exc()
        os._exit(code)
    return pid


def ended_well(pids: list[int]) -> bool:
    return all(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0 for pid in pids)


def test_children_and_parent_use_one_producer(queue: Queue) -> None:
    producer = queue.producer
    job = producer.enqueue(Echo(text="ok"))
    with pytest.raises(ResultTimeoutError):
        job.result(timeout=0.2)  # its listener runs

    def work() -> None:
        for number in range(20):
            mine = producer.enqueue(Echo(text=f"ok {number}"))
            assert mine.state() == "queued"
        with pytest.raises(ResultTimeoutError):
            mine.result(timeout=0.2)

    pids = [child(work) for _ in range(4)]
    work()
    assert ended_well(pids)
    assert queue.rows("SELECT count(*) FROM job") == [(101,)]


def test_a_child_that_leaves_the_producers_block_touches_nothing_of_the_parents(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((snapshot, "LISTENING_DELAY"), (listener_module, "IDLE_SECONDS")):
        monkeypatch.setattr(module, name, 2 * PATIENCE)  # a poll would come too late
    with Producer(queue.settings) as producer:
        job = producer.enqueue(Echo(text="ok"))
        with pytest.raises(ResultTimeoutError):
            job.result(timeout=0.2)
        assert ended_well([child(producer.close), child(lambda: (job.state(), producer.close()))])
        listener = next(thread for thread in threading.enumerate() if thread.name == "listener")
        cpu, began = time.process_time(), time.monotonic()
        with pytest.raises(ResultTimeoutError):
            job.result(timeout=1)
        assert time.process_time() - cpu < 0.3 * (time.monotonic() - began)
        assert listener.is_alive()
        waiting = threading.Timer(0.3, lambda: queue.producer.cancel(job.id))
        waiting.start()
        assert producer.wait_all([job], timeout=PATIENCE)[0].error is not None  # it was notified
        waiting.join()


def test_an_async_producer_that_a_parent_used_works_in_its_children(queue: Queue) -> None:
    producer = AsyncProducer(queue.settings)

    async def use() -> None:
        await producer.enqueue(Echo(text="ok"))

    async def use_and_close() -> None:
        for _ in range(10):
            await use()
        await producer.close()

    async def parent() -> None:
        await use()
        pids = [child(lambda: threading_free(use_and_close)) for _ in range(3)]
        await use()
        assert await asyncio.to_thread(ended_well, pids)
        await use()
        await producer.close()

    asyncio.run(parent())
    assert queue.rows("SELECT count(*) FROM job") == [(33,)]


def threading_free(main: Callable[[], object]) -> None:
    """Run a coroutine in a child that was forked by a task: on a loop of its own."""
    asyncio.events._set_running_loop(None)
    asyncio.run(main())  # type: ignore[arg-type]
