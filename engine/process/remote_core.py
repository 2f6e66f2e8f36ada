"""The frontend's half of a core that runs in another process."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from thothy_ai.engine.api import AdapterInfo, EngineInfo, EngineStats, FinishReason
from thothy_ai.engine.api.core import CoreRequest, OnEvents, RefusedEvent, StepFailedError, TokenEvent, end_of
from thothy_ai.engine.api.errors import EngineStoppedError
from thothy_ai.engine.api.inflight_log import AdmissionFile
from thothy_ai.engine.wire.channel import Channel
from thothy_ai.engine.wire.core_messages import (
    AbortRequest,
    AdapterChanged,
    ChangeAdapter,
    CoreEnded,
    FromCore,
    StepReport,
    StopCore,
    ToCore,
)

log = logging.getLogger(__name__)


class RemoteCore:
    """Implements `Core` over a channel to the core's process; `info` is what that process reported when it was ready.

    When the process dies suddenly, requests that it had begun according to `admissions` end with EngineLostError, all
    others with UninvolvedError; `failure` then has the text of `describe_end()`.
    """

    def __init__(
        self,
        channel: Channel[ToCore, FromCore],
        info: EngineInfo,
        on_events: OnEvents,
        describe_end: Callable[[], str],
        admissions: AdmissionFile | None = None,
        adapters: tuple[AdapterInfo, ...] = (),
    ) -> None:
        self._admissions = admissions
        self._channel, self._info, self._on_events, self._describe_end = channel, info, on_events, describe_end
        self._lock = threading.Lock()  # guards the fields below
        self._open: set[str] = set()
        self._changes: dict[int, Future[Any]] = {}  # unanswered changes of adapters
        self._has_ended = False
        self._numbers, self._adapters = itertools.count(), adapters
        self._stats = EngineStats()  # replaced by the reading thread
        self._ended = threading.Event()
        self.failure: StepFailedError | None = None
        threading.Thread(target=self._read, name="engine-core-reader", daemon=True).start()

    def submit(self, request: CoreRequest) -> None:
        with self._lock:
            has_ended = self._has_ended
            if not has_ended:
                self._open.add(request.id)
        if has_ended:
            self._on_events([RefusedEvent(request.id, end_of(request.id, self.failure))])
        else:
            self._send(request)

    def abort(self, request_id: str, reason: FinishReason = FinishReason.ABORTED) -> None:
        self._send(AbortRequest(request_id, reason))

    def adapters(self) -> tuple[AdapterInfo, ...]:
        return self._adapters

    def load_adapter(self, name: str, folder: str) -> Future[AdapterInfo]:
        return self._change(name, folder)

    def unload_adapter(self, name: str) -> Future[None]:
        return self._change(name, None)

    def _change(self, name: str, folder: str | None) -> Future[Any]:
        number, change = next(self._numbers), Future[Any]()
        with self._lock:
            if self._has_ended:
                change.set_exception(EngineStoppedError("the engine has ended"))
                return change
            self._changes[number] = change
        self._send(ChangeAdapter(number, name, folder))
        return change

    def stats(self) -> EngineStats:
        """The statistics received with the last step."""
        return self._stats

    def info(self) -> EngineInfo:
        return self._info

    def stop(self) -> None:
        self._send(StopCore())

    def join(self) -> None:
        """Wait until the core or its process has ended."""
        self._ended.wait()

    def _send(self, message: ToCore) -> None:
        with suppress(OSError):  # the process has ended; the reading thread notices
            self._channel.send(message)

    # ---- the reading thread

    def _read(self) -> None:
        """Pass events on until the core ends, then end the requests in flight."""
        try:
            for message in self._channel:
                match message:
                    case CoreEnded():
                        self._finish(message.failure)
                        return
                    case AdapterChanged():
                        self._adapters = message.adapters
                        with self._lock:
                            change = self._changes.pop(message.number)
                        if message.error is None:
                            change.set_result(message.loaded)
                        else:
                            change.set_exception(message.error)
                    case StepReport():
                        self._stats = message.stats
                        if ended := {event.id for event in message.events if not isinstance(event, TokenEvent)}:
                            with self._lock:
                                self._open -= ended
                        if message.events:
                            self._on_events(message.events)
            cause = self._describe_end()  # first: the process is dead afterwards, and admits nothing more
            self._finish(StepFailedError(self._admitted_ids(), cause))
        except Exception as error:
            log.exception("the core's process cannot be understood")
            self._finish(StepFailedError(self._admitted_ids(), str(error)))

    def _finish(self, failure: StepFailedError | None) -> None:
        """End the requests in flight that the core did not know; it has ended all others itself."""
        with self._lock:
            self.failure, self._has_ended = failure, True
            left, self._open = self._open, set()
            changes, self._changes = self._changes, {}
        for change in changes.values():
            change.set_exception(EngineStoppedError("the engine has ended"))
        if left:
            self._on_events([RefusedEvent(request_id, end_of(request_id, failure)) for request_id in left])
        self._ended.set()

    def _admitted_ids(self) -> tuple[str, ...]:
        """The requests that a suddenly dead core had begun; without a record, all that are in flight."""
        with self._lock:
            ids = sorted(self._open)
        if self._admissions is None:
            return tuple(ids)
        return self._admissions.begun(ids)
