"""Live text of running jobs, over Redis' publish and subscribe: nothing is kept, and no job depends on it.

    watcher ──▶ {prefix}watch      {"job", "whole"}         every second while it watches; all workers hear it
    watcher ◀── {prefix}live:{id}  {"attempt", "at", "text"}  from the worker that runs the job

A piece says how many characters of the output come before it: a watcher that missed some asks for the whole text.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from redis import Redis
from redis.client import PubSub
from redis.exceptions import RedisError

from thothy_ai.settings import Settings

REPEAT_SECONDS = 1.0  # between a watcher's announcements
INTEREST_SECONDS = 5.0  # until a worker forgets a watcher
RETRY_SECONDS = 2.0
ANSWER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Interest:
    """A watcher's request for a job's text; `whole`: from the start, even if it is already being published."""

    job: UUID
    whole: bool = False

    def encode(self) -> str:
        return json.dumps({"job": str(self.job), "whole": self.whole})

    @classmethod
    def parse(cls, data: bytes) -> Interest | None:
        """None for anything else: any client of Redis can publish anything."""
        try:
            fields = json.loads(data)
            return cls(UUID(fields["job"]), whole=bool(fields["whole"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A part of an attempt's output; `at` characters come before it."""

    attempt: int
    at: int
    text: str

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, data: bytes) -> TextPiece | None:
        try:
            fields = json.loads(data)
            return cls(int(fields["attempt"]), int(fields["at"]), str(fields["text"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None


def interest_channel(settings: Settings) -> str:
    """The channel on which watchers announce jobs. Its subscribers are the workers."""
    return f"{settings.queue_prefix}watch"


def presence_channel(settings: Settings, engine_name: str) -> str:
    """A channel without messages: its subscribers are the workers that serve this engine."""
    return f"{settings.queue_prefix}serves:{engine_name}"


def text_channel(settings: Settings, job_id: UUID) -> str:
    """The channel that carries a job's text."""
    return f"{settings.queue_prefix}live:{job_id}"


class TextWatcher:
    """The watcher's side: the text of a job's attempts, in order and without gaps. Without Redis there is no text."""

    def __init__(self, settings: Settings, job_id: UUID) -> None:
        self._job_id = job_id
        self._interest = interest_channel(settings)
        self._channel = text_channel(settings, job_id)
        url = settings.require_redis_url() if settings.redis_url else None
        options: dict[str, Any] = {"socket_timeout": ANSWER_SECONDS, "socket_connect_timeout": ANSWER_SECONDS}
        self._redis: Any = Redis.from_url(url, **options) if url else None  # its stubs lack a type for `pubsub`
        self._inbox: PubSub | None = None
        self._announce_at = self._retry_at = 0.0
        self._attempt = self._length = 0

    def next(self, seconds: float) -> TextPiece | None:
        """The next piece of the latest attempt; None if none came within `seconds`. Never fails."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                if (piece := self._receive(left)) is not None:
                    return piece
            except (RedisError, OSError):
                self._disconnect()
            if self._inbox is None:
                time.sleep(max(0.0, until - time.monotonic()))
        return None

    def close(self) -> None:
        self._disconnect()
        if self._redis is not None:
            self._redis.close()

    def _receive(self, seconds: float) -> TextPiece | None:
        if self._inbox is None and self._redis is not None and time.monotonic() >= self._retry_at:
            self._inbox = self._redis.pubsub()
            self._inbox.subscribe(self._channel)
        if self._inbox is None:
            return None
        self._announce()
        wait = min(seconds, max(0.01, self._announce_at - time.monotonic()))
        message = self._inbox.get_message(ignore_subscribe_messages=True, timeout=wait)
        if (piece := TextPiece.parse(message["data"]) if message else None) is None:
            return None
        if piece.attempt > self._attempt:
            self._attempt, self._length = piece.attempt, 0
        known = self._length - piece.at
        if piece.attempt < self._attempt or known >= len(piece.text):
            return None  # no new text in this piece
        if known < 0:  # text before it is missing
            self._announce(whole=True)
            return None
        self._length += len(piece.text) - known
        return TextPiece(piece.attempt, piece.at + known, piece.text[known:])

    def _announce(self, *, whole: bool = False) -> None:
        now = time.monotonic()
        if self._redis is not None and (whole or now >= self._announce_at):
            self._redis.publish(self._interest, Interest(self._job_id, whole).encode())
            self._announce_at = now + REPEAT_SECONDS

    def _disconnect(self) -> None:
        inbox, self._inbox = self._inbox, None
        self._retry_at = time.monotonic() + RETRY_SECONDS
        if inbox is not None:
            inbox.close()
