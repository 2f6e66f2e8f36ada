"""The HTTP door on a thread of this process, before an engine that a test made."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from openai import OpenAI

from tests.support.patience import PATIENCE
from tests.support.served_engine import served
from thothy_ai.engine.api.backend import Backend
from thothy_ai.http.access import Access, Everybody
from thothy_ai.http.accounts import Accounts
from thothy_ai.http.app import make_app
from thothy_ai.http.console.console import Console
from thothy_ai.http.directory import Single
from thothy_ai.http.engines import Directory, Fleet
from thothy_ai.http.ledger import Ledger
from thothy_ai.http.limits import Limiter
from thothy_ai.http.queue_routes import QueueRoutes
from thothy_ai.http.server import make_server
from thothy_ai.settings import Settings


@contextmanager
def door(backend: Backend, folder: Path, *, share: float = 1.0) -> Iterator[str]:
    """Its address, with an engine that listens in `folder`."""
    url = f"unix://{folder}/engine.sock"
    with served(backend, url), served_door(Settings(engine_url=url), share) as address:
        yield address


@contextmanager
def served_door(
    settings: Settings,
    share: float = 1.0,
    access: Access | None = None,
    ledger: Ledger | None = None,
    port: int = 0,
    directory: Directory | None = None,
) -> Iterator[str]:
    """Its address, before the engine of these settings, which may not be there, or those of a directory, and the queue
    if they have one.
    """
    queue = QueueRoutes(settings) if settings.database_url is not None else None
    console = Console(settings) if settings.database_url is not None else None
    accounts = Accounts(Limiter(settings), ledger or Ledger(settings, None))
    fleet = Fleet(directory or Single(settings), share)
    app = make_app(fleet, access or Everybody("tenant", ()), accounts, queue, console)
    ending = [part.end_streams for part in (queue, console) if part is not None]
    server = make_server(app, settings.model_copy(update={"http_port": port}), ending)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until = time.monotonic() + PATIENCE
        while not server.started and thread.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE)


def strict_client(address: str) -> OpenAI:
    """OpenAI's own client of it, which refuses answers that are not as documented."""
    return OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0, _strict_response_validation=True)
