"""The core's process: weights, scheduling, the device and grammars, for the frontend in the process that started it.

Run as `python -m thothy_ai.engine.process.core_process FD`, where FD is its end of the channel. The parent handles
signals: SIGINT and SIGTERM stay blocked here, as inherited, and this process ends when the parent does.
"""

from __future__ import annotations

import gc
import logging
import queue
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from thothy_ai.engine.api import AdapterInfo, EngineInfo
from thothy_ai.engine.api.core import Core, CoreRequest, Event
from thothy_ai.engine.api.errors import EngineError, as_engine_error
from thothy_ai.engine.api.inflight_log import AdmissionFile
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.process.logs import log_to_stderr
from thothy_ai.engine.serving.address import admissions_at
from thothy_ai.engine.wire.channel import Channel
from thothy_ai.engine.wire.child import end_at_once, end_with_parent
from thothy_ai.engine.wire.core_messages import (
    FROM_CORE,
    TO_CORE,
    AbortRequest,
    AdapterChanged,
    ChangeAdapter,
    ConfigurationRead,
    CoreEnded,
    CoreReady,
    CoreRefused,
    FromCore,
    JsonTokensRead,
    LoadModel,
    StepReport,
    StopCore,
    ToCore,
    TokenizerRead,
)
from thothy_ai.engine.wire.model_text import RemoteText

if TYPE_CHECKING:
    from thothy_ai.engine.core.loop import EngineCore

WITHOUT_PARENT = 1
_LOADING_OBJECTS = 200_000  # until a garbage collection; imports make 290,000, hardly any of them garbage
_SWITCH_SECONDS = 0.0002  # until a thread that compiles grammars yields the interpreter to the core's

ToParent = Channel[FromCore, ToCore]

log = logging.getLogger(__name__)


def main() -> None:
    """Load the model that the parent asks for, serve it, and end with the core."""
    log_to_stderr()
    gc.set_threshold(_LOADING_OBJECTS)
    sys.setswitchinterval(_SWITCH_SECONDS)
    end_with_parent()
    channel: ToParent = Channel(socket.socket(fileno=int(sys.argv[1])), FROM_CORE, TO_CORE)
    received = iter(channel)
    first = next(received)
    if not isinstance(first, LoadModel):
        raise TypeError(f"expected a LoadModel first, got {first!r:.80}")
    options = first.options
    log_to_stderr(options.log_level)
    core: Future[EngineCore] = Future()
    text = RemoteText(channel)
    threading.Thread(
        target=_or_exit, args=(_obey, received, text, core, channel), name="engine-commands", daemon=True
    ).start()
    try:
        _run(channel, options, text, core)
    except (EngineError, ModuleNotFoundError, OSError) as error:
        channel.send(CoreRefused(as_engine_error(error)))
    end_at_once(0)


def _run(channel: ToParent, options: EngineOptions, text: RemoteText, hosted: Future[EngineCore]) -> None:
    """Load, report that it is ready, and wait until the core has ended."""
    # Imports torch, which may fail.
    from thothy_ai.engine.distributed.leader import Group  # noqa: PLC0415
    from thothy_ai.engine.process.resident import load, load_together, start_core  # noqa: PLC0415

    def lose(error: EngineError) -> None:
        """End the core and this process: its main thread or the core's may wait forever for the lost rank."""
        if hosted.done():
            hosted.result().give_up(error)
        else:
            channel.send(CoreRefused(error))
            end_at_once(0)

    reports = Reports(channel)

    def record(info: EngineInfo) -> AdmissionFile | None:
        path = admissions_at(options.url)
        try:
            return AdmissionFile.create(path, info.session_id) if path is not None else None
        except OSError as error:  # without the file, everything in flight counts as begun when this process dies
            log.warning("what is in flight cannot be recorded in %s: %s", path, error.strerror)
            return None

    with ExitStack() as others:  # ended before the parent learns of the end and starts another engine
        group = Group(options, lose) if options.tensor_parallel > 1 else None
        if group is not None:
            others.callback(group.end_others)
        loaded = load(options, text) if group is None else load_together(options, text, group)
        core = start_core(loaded, options, reports.put, record, group)
        channel.send(CoreReady(core.info(), core.adapters()))
        reports.start(core)  # after `CoreReady`, which the parent waits for; the core runs already
        hosted.set_result(core)
        core.join()
        reports.close()
    channel.send(CoreEnded.of(core.failure))


def _or_exit(work: Callable[..., None], *arguments: object) -> None:
    """Run a thread's work. An error ends the process, which could no longer receive or send; the parent notices."""
    try:
        work(*arguments)
    except Exception as error:
        if not isinstance(error, OSError):  # OSError: the other end of the channel is gone
            log.exception("unexpected error in the core's process")
        end_at_once(WITHOUT_PARENT)


def _obey(received: Iterable[ToCore], text: RemoteText, hosted: Future[EngineCore], channel: ToParent) -> None:
    """Carry out the parent's messages until it ends."""
    for message in received:
        match message:
            case ConfigurationRead() | TokenizerRead() | JsonTokensRead():
                text.take(message)
            case CoreRequest():
                hosted.result().submit(message)
            case AbortRequest(id_, reason):
                hosted.result().abort(id_, reason)
            case ChangeAdapter():
                _change(message, hosted.result(), channel)
            case StopCore():
                hosted.result().stop()
    end_at_once(WITHOUT_PARENT)


_LISTING = threading.Lock()  # a list of adapters is sent before the next one is read


def _change(asked: ChangeAdapter, core: Core, channel: ToParent) -> None:
    """Load or unload an adapter, and report the outcome."""

    def report(done: Future[AdapterInfo] | Future[None]) -> None:
        error = done.exception()
        if error is not None and not isinstance(error, Exception):
            raise error
        refusal = None if error is None else as_engine_error(error)
        loaded = None if refusal else done.result()
        with suppress(OSError), _LISTING:  # OSError: the parent is gone
            channel.send(AdapterChanged(asked.number, core.adapters(), loaded, refusal))

    if asked.folder is None:
        core.unload_adapter(asked.name).add_done_callback(report)
    else:
        core.load_adapter(asked.name, asked.folder).add_done_callback(report)


class Reports:
    """Sends the core's events and statistics from a separate thread, so that no step waits for the parent."""

    def __init__(self, channel: ToParent) -> None:
        self._channel = channel
        self._events: queue.SimpleQueue[list[Event] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, events: list[Event]) -> None:
        """Queue a step's events; the core calls this once per step."""
        self._events.put(events)

    def start(self, core: Core) -> None:
        """Begin to send events and the core's statistics."""
        self._thread = threading.Thread(target=_or_exit, args=(self._run, core), name="engine-reports", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._events.put(None)
        if self._thread is not None:
            self._thread.join()

    def _run(self, core: Core) -> None:
        while (events := self._events.get()) is not None:
            self._channel.send(StepReport.of(events, core.stats()))


if __name__ == "__main__":
    main()
