"""The worker: a Celery process whose pool keeps many jobs in flight on one engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thothy_ai.engine.client import EngineClient
    from thothy_ai.settings import Settings


def main(settings: Settings, connect: Callable[[str], EngineClient] | None = None) -> None:
    """Run a worker in this process until it is told to stop. Raises `ConfigError`; exits non-zero when it broke."""
    from thothy_ai.worker.run import run  # noqa: PLC0415 - Celery is dear to import, and most of the package needs none

    run(settings, connect)
