"""The worker: a Celery process whose pool keeps many jobs in flight on one engine.

A job passes through once: `celery/` (message to hint) → `claimer` → `running_job`, `attempts` (engine, judge) →
`outcomes` → `job_store` (commit) → `celery/` (acknowledgement). `job_runner` owns all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thothy_ai.engine.serving.client import EngineClient
    from thothy_ai.settings import Settings


def main(settings: Settings, connect: Callable[[str], EngineClient] | None = None) -> None:
    """Run a worker in this process until it is told to stop. Raises `ConfigError`; exits non-zero when it broke."""
    from thothy_ai.worker.celery.run import run  # noqa: PLC0415 - Celery is slow to import

    run(settings, connect)
