"""`LivePublisher`: publishes the text of watched running jobs (`queue/live.py`).

Otherwise it costs a dictionary's entry per running job and an idle connection to Redis: the engine sends
deltas only of the requests that are watched. Without Redis, jobs run all the same.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import UUID

from redis.asyncio import Redis
from redis.exceptions import RedisError

from thothy_ai.engine.api.errors import EngineError
from thothy_ai.plans.running_call import RunningCall
from thothy_ai.queue.live import INTEREST_SECONDS, Interest, TextPiece, interest_channel, presence_channel, text_channel
from thothy_ai.settings import Settings
from thothy_ai.worker.engine_monitor import EngineMonitor
from thothy_ai.worker.record.claims import Claim

logger = logging.getLogger(__name__)

MAX_INTERESTS = 1_000  # any client of Redis can announce some
LISTEN_SECONDS, LOOK_SECONDS = 5.0, 0.2  # between announcements, with and without an engine
RETRY_SECONDS = 2.0
ANSWER_SECONDS = 5.0
HEALTH_SECONDS = 15


@dataclass(slots=True, eq=False)
class _Output:
    """A running attempt's output. `following` is set once its deltas are asked for; `text` has them so far.

    `before` is the text of the attempt's earlier calls.
    """

    claim: Claim
    call: RunningCall
    before: str
    following: bool = False
    text: str = ""


class LivePublisher:
    """Owned by the worker's loop, on which all its methods are called."""

    def __init__(self, settings: Settings, monitor: EngineMonitor) -> None:
        self._settings = settings
        self._monitor = monitor
        self._outputs: dict[UUID, _Output] = {}
        self._watched: dict[UUID, float] = {}  # monotonic end of interest by job
        self._tasks: set[asyncio.Task[None]] = set()
        self._redis: Redis | None = None

    @contextmanager
    def offered(self, claim: Claim, call: RunningCall, before: str) -> Iterator[None]:
        """The block waits for this attempt's output, which may be watched meanwhile; `before` is what it wrote before.

        Of calls that run side by side, the first is watched.
        """
        output = self._outputs[claim.id] = _Output(claim, call, f"{before}\n" if before else "")
        if self._watched and self._is_watched(claim.id):
            self._follow(output)
        try:
            yield
        finally:
            if self._outputs.get(claim.id) is output:
                del self._outputs[claim.id]

    async def run(self) -> None:
        """Listen for announcements of watchers, until cancelled. Without Redis, keep trying."""
        if self._settings.redis_url is None:
            return
        self._redis = Redis.from_url(
            self._settings.require_redis_url(),
            socket_connect_timeout=ANSWER_SECONDS,
            socket_timeout=None,  # redis-py's loses cancellations before Python 3.12: ours, around every call
            health_check_interval=HEALTH_SECONDS,
        )
        options = self._redis.connection_pool.connection_kwargs  # an option in the URL wins over ours
        options |= dict.fromkeys({"socket_timeout", "orig_socket_timeout"} & options.keys())
        try:
            while True:
                try:
                    await self._listen(self._redis)
                except (RedisError, OSError) as error:
                    logger.debug("no live text: %s", error)
                except Exception:  # no error here may end the worker
                    logger.exception("no live text for %g s", RETRY_SECONDS)
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            for task in self._tasks:
                task.cancel()
            await self._redis.aclose()

    async def _listen(self, redis: Redis) -> None:
        """Record watched jobs, and subscribe as a server of the current engine."""
        async with redis.pubsub() as inbox:
            async with asyncio.timeout(ANSWER_SECONDS):
                await inbox.subscribe(interest_channel(self._settings))
            served = ""
            while True:
                name = self._monitor.info.name if self._monitor.is_ready and self._monitor.info else ""
                if name != served:
                    async with asyncio.timeout(ANSWER_SECONDS):
                        if served:
                            await inbox.unsubscribe(presence_channel(self._settings, served))
                        if name:
                            await inbox.subscribe(presence_channel(self._settings, name))
                    served = name
                seconds = LISTEN_SECONDS if served else LOOK_SECONDS
                async with asyncio.timeout(seconds + ANSWER_SECONDS):
                    message = await inbox.get_message(ignore_subscribe_messages=True, timeout=seconds)
                if message and (interest := Interest.parse(message["data"])):
                    self._note(interest)

    def _note(self, interest: Interest) -> None:
        now = time.monotonic()
        if len(self._watched) >= MAX_INTERESTS:
            self._watched = {job: until for job, until in self._watched.items() if until > now}
        if len(self._watched) < MAX_INTERESTS:
            self._watched[interest.job] = now + INTEREST_SECONDS
        output = self._outputs.get(interest.job)
        if output is None:
            return
        if not output.following:
            self._follow(output)
        elif interest.whole:
            self._start(self._publish(output, TextPiece(output.claim.attempt, 0, output.before + output.text)))

    def _is_watched(self, job_id: UUID) -> bool:
        return self._watched.get(job_id, 0.0) > time.monotonic()

    def _follow(self, output: _Output) -> None:
        output.following = True
        self._start(self._publish_deltas(output))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # asyncio keeps a weak reference only
        task.add_done_callback(self._tasks.discard)

    async def _publish_deltas(self, output: _Output) -> None:
        """Publish until the generation ends; the attempt itself handles its end."""
        said = 0  # characters already published
        with suppress(EngineError):
            await output.call.stream()
            async for piece in output.call.texts():
                output.text += piece
                text = output.before + output.text
                await self._publish(output, TextPiece(output.claim.attempt, said, text[said:]))
                said = len(text)

    async def _publish(self, output: _Output, piece: TextPiece) -> None:
        if self._redis is not None and self._is_watched(output.claim.id):
            with suppress(RedisError, OSError):  # a `TimeoutError` is an `OSError`
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._redis.publish(text_channel(self._settings, output.claim.id), piece.encode())
