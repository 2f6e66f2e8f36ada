"""Starts an engine for one command, in a temporary folder, and stops it with the command."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from thothy_ai.embedded.endpoint import Endpoint, engine_endpoint, remove_socket
from thothy_ai.embedded.process import Process, Program, service_argv
from thothy_ai.embedded.readiness import ENGINE_READY_SECONDS, engine_listens
from thothy_ai.settings import PREFIX, Settings


@contextmanager
def temporary_engine(
    settings: Settings, model: Path, max_rows: int, verifier: Path | None = None
) -> Iterator[Endpoint]:
    """An engine with this model, ready until the context is left. If it does not start, its log is kept.

    With fewer rows, it allocates less memory and captures fewer graphs. Raises `ServiceStartError`.
    """
    folder = Path(tempfile.mkdtemp(prefix="thothy-engine-"))
    try:
        endpoint = engine_endpoint(folder)
        beside = ("--verifier", str(verifier.absolute())) if verifier is not None else ()
        arguments = ("--model", str(model.absolute()), "--url", endpoint.url, "--max-rows", str(max_rows), *beside)
        token = {f"{PREFIX}ENGINE_TOKEN": endpoint.token} if endpoint.token else {}
        unregistered = {f"{PREFIX}METRICS_PORT": "0", f"{PREFIX}DATABASE_URL": "", f"{PREFIX}HOME": str(folder)}
        program = Program(
            name="engine",
            argv=service_argv("engine", *arguments),
            env=settings.environment() | unregistered | token,
            log=folder / "engine.log",
            ready=lambda: engine_listens(endpoint.url),
            ready_seconds=ENGINE_READY_SECONDS,
        )
        process = Process(program)
        process.start()
    except KeyboardInterrupt:
        _remove(folder)
        raise
    try:
        yield endpoint
    finally:
        try:
            process.stop()
        finally:
            _remove(folder)


def _remove(folder: Path) -> None:
    remove_socket(folder)
    shutil.rmtree(folder, ignore_errors=True)
