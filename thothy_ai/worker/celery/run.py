"""Starts Celery's worker in this process."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from celery import signals

from thothy_ai.db.schema import refuse_other_schema
from thothy_ai.foreign import connect as connect_to
from thothy_ai.foreign import declared_by
from thothy_ai.producer.drafts import load_kinds
from thothy_ai.queue.hints import QUEUE
from thothy_ai.queue.redis_server import refuse_unusable_redis
from thothy_ai.settings import Settings
from thothy_ai.telemetry import configure_logging, serve_metrics
from thothy_ai.worker.celery.app import make_worker_app
from thothy_ai.worker.celery.lists import EngineLists
from thothy_ai.worker.celery.urgent import UrgentConsumer
from thothy_ai.worker.celery.visibility import VisibilityRefresh

if TYPE_CHECKING:  # the client's module is only needed where a client is made
    from thothy_ai.engine.serving.client import EngineClient

SWITCH_SECONDS = 0.001  # Celery's thread and the loop's share the interpreter in slices of 1 ms, not 5


def run(settings: Settings, connect: Callable[[str], EngineClient] | None = None) -> None:
    """Work until SIGTERM (finish running jobs first) or SIGQUIT (release them at once)."""
    settings.require_database_url()
    settings.require_engine_url()
    refuse_other_schema(settings)
    refuse_unusable_redis(settings)
    if connect is None:
        connect = partial(connect_to, token=settings.reveal_engine_token(), declared=declared_by(settings))
    app = make_worker_app(settings, connect)
    load_kinds(settings)
    configure_logging(settings)
    serve_metrics(settings)
    sys.setswitchinterval(SWITCH_SECONDS)
    app.steps["consumer"].update((UrgentConsumer, EngineLists, VisibilityRefresh))
    signals.setup_logging.connect(_keep_logging)
    worker = app.Worker(
        exclude_queues=[QUEUE],  # `EngineLists` adds the engine's lists, once the engine has said its name
        loglevel=logging.getLogger("celery").getEffectiveLevel(),
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )
    worker.start()
    if worker.exitcode:
        sys.exit(worker.exitcode)


def _keep_logging(**_: object) -> None:
    """Celery leaves logging alone if any receiver of this signal is connected."""
