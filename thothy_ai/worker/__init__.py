"""The worker: a Celery process whose pool keeps many jobs in flight on one engine.

A job passes through each part once; every part uses only those below it:

    celery/         messages to hints; in the end, their acknowledgements
    loop            one thread and asyncio loop, which owns all jobs in flight
      claimer       hints to claims; `quarantine` says which jobs may run together
      attempt       a claim through its plan and the engine, to a `Finish` by `outcomes`; `live` publishes its text
      committer     a `Finish` to its committed outcome
      heartbeat     extends leases, and stops jobs
    engine_monitor  whether the engine answers, and in which session
    record/         what is read from Postgres and written to it

`registration/` is the engine's own side: a process that records the engine's session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thothy_ai.engine.serving.client import EngineClient
    from thothy_ai.settings import Settings


def main(settings: Settings, connect: Callable[[str], EngineClient] | None = None) -> None:
    """Run a worker in this process until a signal stops it. Raises `ConfigError`; exits with a non-zero status after a
    failure.
    """
    from thothy_ai.worker.celery.run import run  # noqa: PLC0415 - Celery is slow to import

    run(settings, connect)
