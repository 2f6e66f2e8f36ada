"""The engine's process: loads a model, serves it at a URL, and shuts down in order.

Exit codes: 2 if it cannot start; once it serves, 0 after SIGTERM or SIGINT, and 70 if a step failed or hangs (the
device's state cannot be trusted afterwards; a supervisor starts a new process). A signal during loading kills it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Iterator
from typing import Protocol

from thothy_ai.engine.api import EngineStats
from thothy_ai.engine.api.backend import Backend, RunningEngine
from thothy_ai.engine.api.errors import EngineError, InvalidRequestError
from thothy_ai.engine.api.identity import identity_of
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.process.factory import make_engine
from thothy_ai.engine.process.logs import log_to_stderr
from thothy_ai.engine.process.watchdog import stalled
from thothy_ai.engine.serving.address import listen_address
from thothy_ai.engine.serving.server import EngineServer

log = logging.getLogger(__name__)

CANNOT_START = 2
STEP_FAILED = 70
_STOP_SECONDS = 10.0  # for the last step to end, and for the last frames to be sent


class Observer(Protocol):
    """Receives the engine's start-up progress and its end. Called on the main thread; must return quickly."""

    def ready(self, url: str) -> None:
        """The engine serves at this URL."""

    def stopping(self) -> None:
        """The engine refuses new requests, and finishes those in flight."""

    def ended(self, code: int, stats: EngineStats) -> None:
        """The process is about to exit with this code; `stats` are its last statistics."""


class _Unobserved:
    def ready(self, url: str) -> None: ...

    def stopping(self) -> None: ...

    def ended(self, code: int, stats: EngineStats) -> None: ...


UNOBSERVED: Observer = _Unobserved()


def run_engine(options: EngineOptions, observer: Observer = UNOBSERVED) -> None:
    """Serve until SIGTERM or SIGINT, and notify `observer`; raises SystemExit with the codes above."""
    log_to_stderr(options.log_level)
    try:
        listen_address(options.url, options.token)  # before a model is loaded for it
        with contextlib.closing(make_engine(options)) as engine:
            code = asyncio.run(_serve(engine, options, observer))
    except (EngineError, ModuleNotFoundError, OSError) as error:
        sys.stderr.write(f"thothy engine: {error}\n")
        raise SystemExit(CANNOT_START) from error
    if code == STEP_FAILED:  # skips the interpreter's teardown, which would wait for the hanging step
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


async def _serve(engine: RunningEngine, options: EngineOptions, observer: Observer) -> int:
    """Serve until shutdown; returns the exit code."""
    server = EngineServer(engine.backend, options.url, options.token)
    await server.start()
    shutdown = _Shutdown(engine)
    watching = asyncio.create_task(_watch(engine, server, shutdown, options.stall_seconds))
    try:
        with _metrics(engine.backend, options):
            info = engine.backend.info()
            sys.stdout.write(
                f"thothy engine: ready at {server.url} model={info.model} device={info.device} dtype={info.dtype} "
                f"context={info.max_context} kv_blocks={info.num_blocks}x{info.block_size}\n"
            )
            sys.stdout.flush()
            observer.ready(server.url)
            await shutdown.requested.wait()
            observer.stopping()
            await _finish_accepted(engine.backend, server, shutdown, options.shutdown_seconds)
            engine.backend.stop()
            await _first_of(_STOP_SECONDS, shutdown.engine_ended.wait())
            if engine.failure is not None:
                log.critical("the engine failed: %s", engine.failure)
            # If the engine has not ended after `stop`, a step hangs.
            ended = engine.failure is None and shutdown.engine_ended.is_set()
            code, stats = 0 if ended else STEP_FAILED, engine.backend.stats()
            engine.close()  # ends even a core that hangs, and its requests
            await _first_of(_STOP_SECONDS, server.wait_settled())
    finally:
        watching.cancel()
        await server.close()
    observer.ended(code, stats)
    return code


async def _watch(engine: RunningEngine, server: EngineServer, shutdown: _Shutdown, seconds: float) -> None:
    """Shut down at once when the engine hangs."""
    waited = await stalled(engine.progress, lambda: server.in_flight, seconds)
    log.critical("no step has ended for %g s, with %d requests in flight", waited, server.in_flight)
    shutdown.force()


class _Shutdown:
    """Events of a shutdown: the first signal sets `requested`, the second `forced`, and the engine's end sets both."""

    def __init__(self, engine: RunningEngine) -> None:
        self.requested, self.forced, self.engine_ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def signalled() -> None:
            (self.forced if self.requested.is_set() else self.requested).set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, signalled)

        def wait() -> None:
            engine.wait_ended()
            with contextlib.suppress(RuntimeError):  # the loop is closed already
                loop.call_soon_threadsafe(self.engine_ended.set)
                loop.call_soon_threadsafe(self.force)

        # A daemon thread, since a step that hangs must not keep the process from exiting.
        threading.Thread(target=wait, name="engine-watch", daemon=True).start()

    def force(self) -> None:
        """Shut down at once, without finishing requests."""
        self.requested.set()
        self.forced.set()


async def _finish_accepted(backend: Backend, server: EngineServer, shutdown: _Shutdown, seconds: float) -> None:
    """Refuse new requests and finish those in flight, unless the shutdown is forced."""
    if shutdown.forced.is_set():
        return
    backend.stop_accepting()
    log.info("shutting down: new requests are refused, those in flight have %g s to finish", seconds)
    await _first_of(seconds, server.wait_settled(), shutdown.forced.wait())


async def _first_of(seconds: float, *waits: Awaitable[object]) -> None:
    """Return when one of `waits` is done, or after `seconds`."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def _metrics(backend: Backend, options: EngineOptions) -> Iterator[None]:
    """Serve metrics if a port is set."""
    if not options.metrics_port:
        yield
        return
    from prometheus_client import start_http_server  # noqa: PLC0415  an engine without metrics does not need it

    from thothy_ai.engine.process.metrics import registry_of  # noqa: PLC0415  as above

    where = f"{options.metrics_host}:{options.metrics_port}"
    try:
        registry = registry_of(backend, identity_of(options).name)
        server, thread = start_http_server(options.metrics_port, options.metrics_host, registry)
    except OSError as error:
        raise InvalidRequestError(f"metrics cannot be served at {where}: {error.strerror}") from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
