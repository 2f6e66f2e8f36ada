"""`EnginePool`: a Celery pool whose jobs are run by a `WorkerLoop`, many in flight from one process.

It runs on Celery's main thread; other threads reach it only through `hub.call_soon`. It keeps the only strong
reference to each handle. A cancelled handle calls no callback at all: its message stays unacknowledged.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.concurrency.base import BasePool
from celery.worker import state
from kombu.asynchronous import Hub

from thothy_ai.queue import metrics as queue_metrics
from thothy_ai.queue.hints import TASK, Hint, MalformedHintError, parse
from thothy_ai.worker.celery.app import WorkerApp, worker_name
from thothy_ai.worker.loop import WorkerLoop

logger = logging.getLogger(__name__)
celery_state: Any = state  # the stubs declare its variables as None

ORDINARY_THREADS = 2  # for tasks that are not jobs
PUMP_SECONDS = 0.02
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)

Callback = Callable[[Any], None]


class Handle:
    """Celery's handle of a task that it handed over. Celery keeps a weak reference to it, the pool the strong one."""

    def __init__(self, callback: Callback, error_callback: Callback | None) -> None:
        self._callback = callback
        self._error_callback = error_callback
        self._cancelled = False

    def terminate(self, signal: object = None) -> None:  # noqa: ARG002 - Celery's signature
        """End the pool: it calls no further callbacks."""
        self._cancelled = True

    def succeed(self, outcome: tuple[int, Any, float] = (0, None, 0.0)) -> None:
        """Report to Celery that the task is done: it acknowledges the message."""
        if not self._cancelled:
            self._callback(outcome)

    def fail(self, error: ExceptionInfo) -> None:
        """Report to Celery that the task raised an error."""
        if not self._cancelled and self._error_callback is not None:
            self._error_callback(error)


@dataclass(slots=True)
class Ticket:
    """A job's message in this process: its delivery tag, and the handle of its latest delivery."""

    delivery_tag: object
    handle: Handle


class EnginePool(BasePool):
    """Hands jobs to the worker's loop and returns at once; runs ordinary tasks in a few threads."""

    signal_safe = True
    task_join_will_block = False
    body_can_be_buffer = True
    app: WorkerApp

    def on_start(self) -> None:
        """Start the loop. From now on, Celery's handlers get only the first signal."""
        self._hub: Hub | None = None
        self._tickets: dict[Hint, Ticket] = {}
        self._ordinary: set[Handle] = set()
        self._threads = ThreadPoolExecutor(ORDINARY_THREADS, thread_name_prefix="task")
        app = self.app
        self._loop = WorkerLoop(app.settings, worker_name(), app.connect, self._on_done, self._on_death)
        self._loop.start()
        self._stop_signals = 0
        self._stopping = False
        if threading.current_thread() is threading.main_thread():
            for number in STOPPING:
                signal.signal(number, self._counting(signal.getsignal(number)))

    def register_with_event_loop(self, loop: Hub) -> None:
        """Take the hub through which completions come back."""
        self._hub = loop

    @property
    def engine_name(self) -> str:
        """The name of the engine that answered last; empty until one has, and for one without a name."""
        return self._loop.engine_name

    def on_apply(self, target: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], **options: Any) -> Any:
        """Hand a task over. `args` are Celery's: task name, task id, request, body, content type, encoding."""
        handle = Handle(options["callback"], options.get("error_callback"))
        options["accept_callback"](os.getpid(), time.monotonic())
        if args[0] == TASK:
            self._hand_over(args[2], handle)
        else:
            self._ordinary.add(handle)
            self._threads.submit(self._run_ordinary, handle, target, args, kwargs)
        return handle

    def terminate_job(self, pid: int, signal: object = None) -> None:
        """Do nothing: jobs have no process of their own, and cancelled handles call nothing."""

    def on_stop(self) -> None:
        """Claim nothing more, finish or release running jobs and acknowledge them; leave the rest unacknowledged.

        On a further signal running jobs are released at once.
        """
        self._loop.shut_down(0.0 if celery_state.should_terminate else self.app.settings.shutdown_deadline_seconds)
        self._stopping = True
        if self._stop_signals > 1:
            self._loop.shut_down(0.0)
        with _signals(lambda: self._loop.shut_down(0.0)):
            while not self._loop.join(PUMP_SECONDS):
                self._pump()
        self._pump()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def on_terminate(self) -> None:
        """Release running jobs at once."""
        self.on_stop()

    def _counting(self, first: Any) -> Callable[[int, Any], None]:
        """A handler that passes only the first signal on: Celery's would ignore a second one before `on_stop`."""

        def on_signal(number: int, frame: Any) -> None:
            self._stop_signals += 1
            if self._stopping:
                self._loop.shut_down(0.0)
            elif self._stop_signals == 1 and callable(first):
                first(number, frame)

        return on_signal

    def _hand_over(self, request: dict[str, Any], handle: Handle) -> None:
        try:
            hint = parse(request.get("args"), request.get("kwargs"))
        except MalformedHintError as error:
            self._drop(handle, "malformed", str(error))
            return
        tag = request.get("properties", {}).get("delivery_tag")
        ticket = self._tickets.get(hint)
        if ticket is None:
            self._tickets[hint] = Ticket(tag, handle)
            self._loop.hand_over(hint)
        elif ticket.delivery_tag == tag:
            ticket.handle = handle  # redelivered after the broker was lost: adopted
        else:
            self._drop(handle, "duplicate", f"job {hint.job_id} is already here")

    def _drop(self, handle: Handle, reason: str, detail: str) -> None:
        queue_metrics.DROPPED.labels(reason).inc()
        logger.warning("message dropped, %s: %s", reason, detail)
        self._soon(handle.succeed)

    def _run_ordinary(
        self, handle: Handle, target: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        """Run a task that is not a job, on a thread of the pool."""
        try:
            outcome = target(*args, **kwargs)
        except BaseException:  # noqa: BLE001 - an error of the task must not end this thread
            report = partial(handle.fail, ExceptionInfo())
        else:
            report = partial(handle.succeed, outcome)

        def done() -> None:
            self._ordinary.discard(handle)
            report()

        self._soon(done)

    def _on_done(self, hints: Sequence[Hint]) -> None:
        """Acknowledge the messages of committed jobs. Called on the loop's thread."""

        def acknowledge() -> None:
            for hint in hints:
                ticket = self._tickets.pop(hint, None)
                if ticket is not None:
                    ticket.handle.succeed()

        self._soon(acknowledge)

    def _on_death(self) -> None:
        """End the process, which is useless without its loop, so that its supervisor starts another."""
        celery_state.should_stop = os.EX_SOFTWARE

    def _soon(self, call: Callable[[], None]) -> None:
        """Have a function called on Celery's main thread."""

        def then_pump() -> None:
            call()
            self._pump()  # acknowledgements queued from the hub's own thread would wait for its next event

        if self._hub is not None:
            self._hub.call_soon(then_pump)

    def _pump(self) -> None:
        """Run the hub's pending calls: its loop does not run while the pool stops."""
        hub: Any = self._hub  # kombu has no public way to ask
        while hub is not None and (ready := hub._pop_ready()):
            for call in tuple(ready):
                call()


@contextmanager
def _signals(release: Callable[[], None]) -> Iterator[None]:
    """Signals that would stop the worker call `release` meanwhile: it is stopping already. Main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: release()) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
