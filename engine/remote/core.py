"""The text edge's half of a core that runs in another process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from thothy_ai.engine.api import EngineInfo, EngineStats, FinishReason
from thothy_ai.engine.core_api import CoreRequest, Event, OnEvents, RefusedEvent, StepFailedError, TokenEvent
from thothy_ai.engine.errors import EngineError, EngineLostError, EngineStoppedError
from thothy_ai.engine.remote.channel import Channel, Message
from thothy_ai.engine.remote.messages import Word, read_events, read_failure, read_stats, request_parts

log = logging.getLogger(__name__)


class RemoteCore:
    """Implements `Core` over a channel to the process that has it; `info` is what that process said when it was ready.

    When the process dies, whatever is in flight ends with EngineLostError, and `failure` is `describe_end()`.
    """

    def __init__(
        self, channel: Channel, info: EngineInfo, on_events: OnEvents, describe_end: Callable[[], str]
    ) -> None:
        self._channel, self._info, self._on_events, self._describe_end = channel, info, on_events, describe_end
        self._lock = threading.Lock()  # guards what follows
        self._open: set[str] = set()
        self._end: EngineError | None = None  # how requests end once the core has ended
        self._stats = EngineStats()  # replaced by the reading thread
        self._ended = threading.Event()
        self.failure: Exception | None = None
        threading.Thread(target=self._read, name="engine-core-reader", daemon=True).start()

    def submit(self, request: CoreRequest) -> None:
        """Send a request."""
        with self._lock:
            end = self._end
            if end is None:
                self._open.add(request.id)
        if end is None:
            self._send(Word.SUBMIT, request_parts(request))
        else:
            self._on_events([RefusedEvent(request.id, end)])

    def abort(self, request_id: str, reason: FinishReason = FinishReason.ABORTED) -> None:
        """Send it on."""
        self._send(Word.ABORT, request_id, reason.value)

    def stats(self) -> EngineStats:
        """Those that came with the last step."""
        return self._stats

    def info(self) -> EngineInfo:
        """Fixed at start."""
        return self._info

    def stop(self) -> None:
        """Send it on."""
        self._send(Word.STOP)

    def join(self) -> None:
        """Wait until the core has ended, or its process has."""
        self._ended.wait()

    def _send(self, *parts: object) -> None:
        """Whether the process has ended is the reading thread's to notice."""
        with suppress(OSError):
            self._channel.send(*parts)

    # ---- the reading thread

    def _read(self) -> None:
        try:
            self._follow(self._channel)
        except Exception as error:
            log.exception("the core's process cannot be understood")
            self._finish(error)

    def _follow(self, messages: Iterable[Message]) -> None:
        for word, *parts in messages:
            if word == Word.ENDED:
                self._finish(read_failure(parts[0]))
                return
            self._stats = read_stats(parts[1])
            self._take(read_events(parts[0]))
        self._finish(StepFailedError(self._open_ids(), self._describe_end()))

    def _take(self, events: list[Event]) -> None:
        ended = {event.id for event in events if not isinstance(event, TokenEvent)}
        if ended:
            with self._lock:
                self._open -= ended
        if events:
            self._on_events(events)

    def _finish(self, failure: Exception | None) -> None:
        """End what is in flight and unknown to the core; what it knew, it has ended itself."""
        how = EngineStoppedError if failure is None else EngineLostError
        with self._lock:
            self._end = how("the engine stopped with the request in flight")
            left, self._open = self._open, set()
        self.failure = failure
        if left:
            self._on_events([RefusedEvent(request_id, self._end) for request_id in left])
        self._ended.set()

    def _open_ids(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(self._open))
