"""The queue's Celery application: broker, message format, delivery. JSON only, ids only.

The dispatcher publishes with it; a worker's application extends it.
"""

from __future__ import annotations

import ssl
from typing import Any, TypeVar

from celery import Celery
from kombu import Exchange, Queue

from thothy_ai.queue.hints import QUEUE, TASK, list_names
from thothy_ai.settings import Settings

VISIBILITY_TIMEOUT = 120
SOCKET_TIMEOUT = 10
CONNECT_TIMEOUT = 5


class QueueApp(Celery):
    """A Celery application that knows the service's settings."""

    settings: Settings


App = TypeVar("App", bound=QueueApp)


def make_app(settings: Settings, kind: type[App]) -> App:
    """An application of this class for these settings."""
    app = kind("thothy", set_as_current=False)
    app.settings = settings
    app.conf.update(configuration(settings))
    app.task(name=TASK)(_run)
    app.finalize()
    return app


def configuration(settings: Settings) -> dict[str, Any]:
    """Celery's settings. Order, time, retries and chains live in Postgres, and so do results."""
    tls = settings.require_redis_url().startswith("rediss:")
    return {
        "broker_url": settings.require_redis_url(),
        "broker_transport": "thothy_ai.queue.transport:Transport",
        "broker_transport_options": transport_options(settings),
        # Kombu adds what the URL says in its query (`ssl_ca_certs`).
        "broker_use_ssl": {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True} if tls else None,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "accept_content": ["json"],
        "task_serializer": "json",
        "result_serializer": "json",
        "task_default_queue": QUEUE,  # Celery needs one; nothing is published to it, and nothing consumes it
        "task_acks_late": True,  # also the back-pressure
        "task_ignore_result": True,
        "worker_concurrency": settings.worker_in_flight,
        "worker_prefetch_multiplier": 1,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_enable_remote_control": False,
        "worker_send_task_events": False,
        "worker_disable_rate_limits": True,
        "worker_detect_quorum_queues": False,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
    }


def ordinary_queue(engine: str) -> Queue:
    """The queue that this engine's worker consumes."""
    return _queue(list_names(engine).ordinary)


def urgent_queue(engine: str) -> Queue:
    """The queue of this engine's urgent jobs."""
    return _queue(list_names(engine).urgent)


def transport_options(settings: Settings) -> dict[str, Any]:
    return {
        "global_keyprefix": settings.queue_prefix,
        "visibility_timeout": VISIBILITY_TIMEOUT,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        "socket_timeout": SOCKET_TIMEOUT,
        "socket_connect_timeout": CONNECT_TIMEOUT,
        "socket_keepalive": True,
        "max_retries": 1,  # for publishing without Redis: the dispatcher itself retries
        "interval_start": 0,
    }


def _queue(name: str) -> Queue:
    """The anonymous exchange needs no bindings in Redis: a FLUSHALL cannot take them away."""
    return Queue(name, Exchange(""), routing_key=name)


def _run(job_id: str, dispatch_no: int) -> None:
    """The task that a message names. `EnginePool` takes it before Celery would call this."""
    raise RuntimeError(f"job {job_id}, dispatch {dispatch_no}: needs an EnginePool, start workers with `thothy worker`")
