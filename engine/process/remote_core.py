"""The frontend's half of a core that runs in another process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from thothy_ai.engine.api import EngineInfo, EngineStats, FinishReason
from thothy_ai.engine.api.core import CoreRequest, Event, OnEvents, RefusedEvent, StepFailedError, TokenEvent, end_of
from thothy_ai.engine.api.inflight_log import AdmissionFile
from thothy_ai.engine.wire.channel import Channel, Message
from thothy_ai.engine.wire.core_messages import Word, read_events, read_failure, read_stats, request_parts

log = logging.getLogger(__name__)


class RemoteCore:
    """Implements `Core` over a channel to the process that has it; `info` is what that process said when it was ready.

    When the process dies without a word, what it had begun by `admissions` ends with EngineLostError, the rest with
    UninvolvedError; `failure` says `describe_end()`.
    """

    def __init__(
        self,
        channel: Channel,
        info: EngineInfo,
        on_events: OnEvents,
        describe_end: Callable[[], str],
        admissions: AdmissionFile | None = None,
    ) -> None:
        self._admissions = admissions
        self._channel, self._info, self._on_events, self._describe_end = channel, info, on_events, describe_end
        self._lock = threading.Lock()  # guards what follows
        self._open: set[str] = set()
        self._has_ended = False
        self._stats = EngineStats()  # replaced by the reading thread
        self._ended = threading.Event()
        self.failure: StepFailedError | None = None
        threading.Thread(target=self._read, name="engine-core-reader", daemon=True).start()

    def submit(self, request: CoreRequest) -> None:
        """Send a request."""
        with self._lock:
            has_ended = self._has_ended
            if not has_ended:
                self._open.add(request.id)
        if has_ended:
            self._on_events([RefusedEvent(request.id, end_of(request.id, self.failure))])
        else:
            self._send(Word.SUBMIT, request_parts(request))

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
            self._finish(StepFailedError(self._admitted_ids(), str(error)))

    def _follow(self, messages: Iterable[Message]) -> None:
        for word, *parts in messages:
            if word == Word.ENDED:
                self._finish(read_failure(parts[0]))
                return
            self._stats = read_stats(parts[1])
            self._take(read_events(parts[0]))
        cause = self._describe_end()  # first: it is dead then, and admits nothing more
        self._finish(StepFailedError(self._admitted_ids(), cause))

    def _take(self, events: list[Event]) -> None:
        ended = {event.id for event in events if not isinstance(event, TokenEvent)}
        if ended:
            with self._lock:
                self._open -= ended
        if events:
            self._on_events(events)

    def _finish(self, failure: StepFailedError | None) -> None:
        """End what is in flight and unknown to the core; what it knew, it has ended itself."""
        with self._lock:
            self.failure, self._has_ended = failure, True
            left, self._open = self._open, set()
        if left:
            self._on_events([RefusedEvent(request_id, end_of(request_id, failure)) for request_id in left])
        self._ended.set()

    def _admitted_ids(self) -> tuple[str, ...]:
        """Those that a core which died without a word had begun with; without a record, all that are in flight."""
        with self._lock:
            ids = sorted(self._open)
        if self._admissions is None:
            return tuple(ids)
        return self._admissions.begun(ids)
