"""The engine's process: loads a model, serves it at a URL, and ends in an orderly way.

Exit codes once it serves: 0 after SIGTERM or SIGINT, 70 if a step failed or hangs (the device's state can't be trusted
after that; whoever supervises the process starts a new one). 2 if it can't start; a signal while it loads kills it.
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
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from thothy_ai.engine.backend import Backend
from thothy_ai.engine.errors import EngineError, InvalidRequestError
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.engine.options import EngineOptions
from thothy_ai.engine.process.watchdog import stalled
from thothy_ai.engine.serving.address import parse_address
from thothy_ai.engine.serving.server import EngineServer

if TYPE_CHECKING:
    from thothy_ai.engine.core.loop import EngineCore

log = logging.getLogger(__name__)

CANNOT_START = 2
STEP_FAILED = 70
# torch's OpenMP threads spin while they wait, and take the core from whoever else needs it: the queue's processes on
# a small machine. Spinning briefly costs a quiet machine nothing. Read when torch is first imported.
_SPIN_COUNT = "2000"
_GOODBYE_SECONDS = 10.0  # for the last step to end and the last frames to leave


@dataclass(frozen=True, slots=True)
class Engine:
    """A backend that is ready for requests; a null engine has no core."""

    backend: Backend
    core: EngineCore | None


def run_engine(options: EngineOptions) -> None:
    """Serve until SIGTERM or SIGINT; raises SystemExit with the codes above."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        parse_address(options.url)
        engine = _load(options)
        code = asyncio.run(_serve(engine, options))
    except (EngineError, ModuleNotFoundError, OSError) as error:
        sys.stderr.write(f"thothy engine: {error}\n")
        raise SystemExit(CANNOT_START) from error
    if code == STEP_FAILED:
        _leave_at_once(code)
    if code:
        raise SystemExit(code)


def _leave_at_once(code: int) -> NoReturn:
    """Without tearing down: torch aborts the process when it frees what a broken device held."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _load(options: EngineOptions) -> Engine:
    if options.null:
        return Engine(NullEngine(options.null_latency), None)
    if options.model is None:
        raise InvalidRequestError("no model is given: name a Hugging Face folder or a GGUF file")
    os.environ.setdefault("GOMP_SPINCOUNT", _SPIN_COUNT)
    from thothy_ai.engine.process.resident import load_engine  # noqa: PLC0415  brings torch along; a null engine has none

    frontend, core = load_engine(options.model, options)
    return Engine(frontend, core)


async def _serve(engine: Engine, options: EngineOptions) -> int:
    server = EngineServer(engine.backend, options.url)
    await server.start()
    ending = _Ending()
    ending.watch_signals()
    watching = asyncio.create_task(_watch(engine, server, ending, options.stall_seconds))
    try:
        with _metrics(engine.backend, options):
            sys.stdout.write(_ready_line(engine.backend, server.url))
            sys.stdout.flush()
            await ending.asked.wait()
            await _drain(engine.backend, server, ending, options.drain_seconds)
            await _shut_down(engine.backend, server, ending)
    finally:
        watching.cancel()
        await server.close()
    return _verdict(engine.core, ending)


async def _watch(engine: Engine, server: EngineServer, ending: _Ending, seconds: float) -> None:
    """End with the core, or when it stands still; a null engine has none."""
    if engine.core is None:
        return
    ending.watch_core(engine.core)
    await stalled(lambda: engine.backend.stats().core.steps, lambda: server.in_flight, seconds)
    log.critical("no step has ended for %g s, with %d requests in flight", seconds, server.in_flight)
    ending.hurry()


def _verdict(core: EngineCore | None, ending: _Ending) -> int:
    """The exit code; a core that did not end when it was told to has a step that hangs."""
    if core is None:
        return 0
    if core.failure is not None:
        log.critical("%s", core.failure)
    return 0 if core.failure is None and ending.core_ended.is_set() else STEP_FAILED


class _Ending:
    """What makes the engine end: `asked` by a signal, `hurried` by a second one; both by the end of its core."""

    def __init__(self) -> None:
        self.asked, self.hurried, self.core_ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def watch_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._signalled)

    def watch_core(self, core: EngineCore) -> None:
        """In a daemon thread: a step that hangs must not keep the process from ending."""

        def wait() -> None:
            core.join()
            with contextlib.suppress(RuntimeError):  # the loop has gone first
                self._loop.call_soon_threadsafe(self._core_has_ended)

        threading.Thread(target=wait, name="engine-watch", daemon=True).start()

    def _signalled(self) -> None:
        (self.hurried if self.asked.is_set() else self.asked).set()

    def _core_has_ended(self) -> None:
        self.core_ended.set()
        self.hurry()

    def hurry(self) -> None:
        """End now, whatever is in flight."""
        self.asked.set()
        self.hurried.set()


async def _drain(backend: Backend, server: EngineServer, ending: _Ending, seconds: float) -> None:
    """Finish what is in flight, as long as nobody hurries."""
    if ending.hurried.is_set():
        return
    backend.drain()
    log.info("draining, for at most %g s", seconds)
    await _first_of(seconds, server.wait_settled(), ending.hurried.wait())


async def _shut_down(backend: Backend, server: EngineServer, ending: _Ending) -> None:
    """Stop the backend and let clients hear how it ended."""
    backend.stop()
    if not isinstance(backend, NullEngine):
        await _first_of(_GOODBYE_SECONDS, ending.core_ended.wait())
    await _first_of(_GOODBYE_SECONDS, server.wait_settled())


async def _first_of(seconds: float, *waits: Awaitable[object]) -> None:
    """Return when one of them is done or the time is up."""
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
        server, thread = start_http_server(options.metrics_port, options.metrics_host, registry_of(backend))
    except OSError as error:
        raise InvalidRequestError(f"metrics cannot be served at {where}: {error.strerror}") from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _ready_line(backend: Backend, url: str) -> str:
    info = backend.info()
    return (
        f"thothy engine: ready at {url} model={info.model} device={info.device} dtype={info.dtype} "
        f"context={info.max_context} kv_blocks={info.num_blocks}x{info.block_size}\n"
    )
