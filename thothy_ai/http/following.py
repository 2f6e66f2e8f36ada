"""`JobFollowers`: lets streams follow jobs: their states, and the text that their attempts write."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import UUID

from sqlalchemy import Engine

from thothy_ai.admin.job_watch import JobSnapshot, JobWatch
from thothy_ai.db.connect import reaching
from thothy_ai.errors import DatabaseUnreachableError
from thothy_ai.http.errors import RETRY_SECONDS, ApiError
from thothy_ai.queue.live import TextPiece, TextWatcher
from thothy_ai.settings import Settings

MAX_FOLLOWED = 64  # streams at once, each of which holds a thread
MAX_OF_ONE = 16  # streams at once of one viewer or tenant
LOOK_SECONDS = 0.5  # between two looks at a job
NEXT_SECONDS = 0.01  # for text that has arrived with what was just read


class Places:
    """A number of places, of which one holder can take only a part."""

    def __init__(self, places: int, of_one: int, what: str) -> None:
        self._places, self._of_one, self._what = places, of_one, what
        self._taken: Counter[str] = Counter()

    @contextmanager
    def taken(self, by: str) -> Iterator[None]:
        """Hold one during the block; ApiError 429 if none is left."""
        if self._taken.total() >= self._places:
            raise self._refusal(f"{self._places} {self._what} are open already")
        if self._taken[by] >= self._of_one:
            raise self._refusal(f"you have {self._of_one} {self._what} open already: close some")
        self._taken[by] += 1
        try:
            yield
        finally:
            self._taken[by] -= 1
            self._taken += Counter()  # drops holders without places

    @staticmethod
    def _refusal(says: str) -> ApiError:
        return ApiError(429, says, code="too_many_requests", retry_after=RETRY_SECONDS)


class JobFollowers:
    """Owns the threads that wait for texts, and looks at a job once, however many follow it."""

    def __init__(self, settings: Settings, database: Engine) -> None:
        self._settings, self._database = settings, database
        self._places = Places(MAX_FOLLOWED, MAX_OF_ONE, "streams of jobs")
        self._listeners = ThreadPoolExecutor(MAX_FOLLOWED, thread_name_prefix="live-text")
        self._lookers = ThreadPoolExecutor(2, thread_name_prefix="job-look")
        self._followed: Counter[UUID] = Counter()
        self._looks: dict[UUID, tuple[float, asyncio.Future[JobSnapshot]]] = {}
        self.ending = False  # streams end once it is True

    def close(self) -> None:
        """Let the streams and their threads end."""
        self.ending = True
        for threads in (self._listeners, self._lookers):
            threads.shutdown(wait=False, cancel_futures=True)

    async def follow(self, job_id: UUID, by: str) -> AsyncGenerator[JobSnapshot | TextPiece, None]:
        """The job after each look, and pieces of its text in between, until it has ended.

        While the database does not answer, the last snapshot is repeated. Raises `ApiError` if too much is followed,
        `UnknownJobError` once the job is deleted, and `DatabaseError` if it cannot be read at first.
        """
        loop, snapshot = asyncio.get_running_loop(), None
        with self._places.taken(by):
            live = TextWatcher(self._settings, job_id)
            self._followed[job_id] += 1
            try:
                while not self.ending:
                    try:
                        snapshot = await self._look(job_id)
                    except DatabaseUnreachableError:  # temporary: repeat the last snapshot
                        if snapshot is None:
                            raise
                    yield snapshot
                    if snapshot.state.terminal:
                        return
                    piece = await loop.run_in_executor(self._listeners, live.next, LOOK_SECONDS)
                    while piece is not None:
                        yield piece
                        piece = await loop.run_in_executor(self._listeners, live.next, NEXT_SECONDS)
            finally:
                self._followed[job_id] -= 1
                if not self._followed[job_id]:
                    del self._followed[job_id]
                    self._looks.pop(job_id, None)
                live.close()

    async def _look(self, job_id: UUID) -> JobSnapshot:
        now = time.monotonic()
        looked_at, look = self._looks.get(job_id, (0.0, None))
        if look is None or (look.done() and now - looked_at >= LOOK_SECONDS / 2):
            look = asyncio.get_running_loop().run_in_executor(self._lookers, self._read, job_id)
            self._looks[job_id] = now, look
        return await asyncio.shield(look)  # shared with other waiters

    def _read(self, job_id: UUID) -> JobSnapshot:
        with reaching(self._settings):
            return JobWatch(self._database, job_id).look()
