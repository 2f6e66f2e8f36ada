"""Serves this process's metrics to Prometheus."""

from __future__ import annotations

from prometheus_client import start_http_server

from thothy_ai.errors import ConfigError
from thothy_ai.settings import Settings


def serve(settings: Settings) -> None:
    """Serve on `metrics_host:metrics_port`, from a thread; a port of 0 serves nothing. Raises `ConfigError`."""
    if not settings.metrics_port:
        return
    try:
        start_http_server(settings.metrics_port, settings.metrics_host)
    except OSError as error:
        where = f"{settings.metrics_host}:{settings.metrics_port}"
        raise ConfigError(f"metrics cannot be served on {where}: {error.strerror}") from None
