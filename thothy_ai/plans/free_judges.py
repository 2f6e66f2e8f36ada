"""`FreeJudges`: gives each task a free process, if possible the one that had the same source before.

A process remembers what prompts and checks find out about a source: its language, sentences and figures. So a job's
outputs take the least time in the process that planned the job, and so do jobs with the same source.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from itertools import islice
from typing import Generic, TypeVar

P = TypeVar("P")
_MAX_SOURCES = 4_096
_MAX_LOOKED_AT = 64  # of the waiting tasks
_MAX_PASSED = 32  # how often the oldest waiting task lets others go first


class _Waiting(Generic[P]):
    """A task that waits for a process."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.process: asyncio.Future[P] = asyncio.get_running_loop().create_future()
        self.passed = 0


class FreeJudges(Generic[P]):
    """The free processes, and the tasks that wait for one. For use on one asyncio loop.

    Tasks with the same `source`, which is not empty, are about the same text.
    """

    def __init__(self) -> None:
        self._free: list[P] = []  # the last one was freed last
        self._waiting: deque[_Waiting[P]] = deque()  # the oldest first
        self._last: OrderedDict[str, P] = OrderedDict()  # by source; the least recently used are forgotten

    def __len__(self) -> int:
        return len(self._free)

    async def get(self, source: str = "") -> P:
        """Wait for a process. It is the caller's until it is `put` back."""
        if self._free:
            last = self._last.get(source)
            process = last if last is not None and last in self._free else self._free[-1]
            self._free.remove(process)
        else:
            waiting = _Waiting[P](source)
            self._waiting.append(waiting)
            try:
                process = await waiting.process
            except asyncio.CancelledError:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
                elif not waiting.process.cancelled():  # it got a process at the same time
                    self.put(waiting.process.result())
                raise
        if source:
            self._last[source] = process
            self._last.move_to_end(source)
            if len(self._last) > _MAX_SOURCES:
                self._last.popitem(last=False)
        return process

    def put(self, process: P) -> None:
        """Give the process to a waiting task, or keep it until one comes."""
        while self._waiting:
            waiting = self._next_for(process)
            self._waiting.remove(waiting)
            if not waiting.process.cancelled():
                waiting.process.set_result(process)
                return
        self._free.append(process)

    def _next_for(self, process: P) -> _Waiting[P]:
        """The oldest task whose source this process had, or else the oldest of all."""
        oldest = self._waiting[0]
        if oldest.passed < _MAX_PASSED:
            for waiting in islice(self._waiting, _MAX_LOOKED_AT):
                if self._last.get(waiting.source) is process:
                    oldest.passed += waiting is not oldest
                    return waiting
        return oldest
