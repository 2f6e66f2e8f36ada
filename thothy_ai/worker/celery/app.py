"""`WorkerApp`: the queue's Celery application with what only a worker needs: its pool, its consumer, its engine."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from thothy_ai.queue.app import QueueApp, make_app
from thothy_ai.settings import Settings

if TYPE_CHECKING:  # the client's module is only needed where a client is made
    from thothy_ai.engine.serving.client import EngineClient

CONFIGURATION = {
    "worker_pool": "thothy_ai.worker.celery.pool:EnginePool",
    "worker_consumer": "thothy_ai.worker.celery.consumer:SteadyConsumer",
}


class WorkerApp(QueueApp):
    """`connect` makes the client of the engine at a URL."""

    connect: Callable[[str], EngineClient]


def make_worker_app(settings: Settings, connect: Callable[[str], EngineClient]) -> WorkerApp:
    """The application of a worker with these settings."""
    app = make_app(settings, WorkerApp)
    app.connect = connect
    app.conf.update(CONFIGURATION)
    return app


def worker_name() -> str:
    """Names this process in the record: unique, even after a restart under the same process id.

    An embedded stack finds the jobs of a worker that has died by its host and process id.
    """
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
