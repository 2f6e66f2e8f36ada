"""Rows that a forecast is made from: jobs, engines, and attempts that ended; and the forecasts that were recorded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from sqlalchemy import Engine, insert, text

from thothy_ai.db.models import AttemptRow, EngineSessionRow, ForecastRow, JobRow

RUN_SECONDS, COMPUTE_SECONDS = 40.0, 2.0


def job(engine: Engine, state: str, **values: object) -> UUID:
    fixed = {"tenant": "t", "kind": "hook", "source_key": "s", "request_digest": "d", "max_attempts": 3}
    number = uuid4()
    with engine.begin() as connection:
        connection.execute(insert(JobRow), {"id": number, "state": state, **fixed, **values})
    return number


def resident(engine: Engine, **values: object) -> UUID:
    """A session that does not fall silent while the test runs."""
    fixed = {"model": "m", "device": "H200", "dtype": "bf16", "gpus": 2, "num_blocks": 1, "block_size": 1}
    number = uuid4()
    now = datetime.now(UTC)
    started = {"started_at": now, "heartbeat_at": now + timedelta(hours=1), "capacity": 20, "model_name": "large"}
    with engine.begin() as connection:
        connection.execute(insert(EngineSessionRow), {"id": number, **fixed, **started, **values})
    return number


def history(engine: Engine, session: UUID, jobs: int = 40, kind: str = "hook") -> None:
    """Jobs that ended within the last minutes, each after one attempt; every fourth was rejected once before."""
    now = datetime.now(UTC)
    for number in range(jobs):
        ended = now - timedelta(seconds=60 + number)
        done = job(engine, "succeeded", kind=kind, finished_at=ended, enqueued_at=ended - timedelta(hours=1),
                   engine_session_id=session)  # fmt: skip
        outcomes = ["rejected", "succeeded"] if number % 4 == 0 else ["succeeded"]
        fixed = {"tenant": "t", "kind": kind, "worker": "w", "engine_session_id": session, "output_tokens": 100}
        times = {"started_at": ended - timedelta(seconds=RUN_SECONDS), "finished_at": ended}
        rows = [
            {"job_id": done, "attempt": n, "outcome": outcome, "compute_seconds": COMPUTE_SECONDS, **fixed, **times}
            for n, outcome in enumerate(outcomes, 1)
        ]
        with engine.begin() as connection:
            connection.execute(insert(AttemptRow), rows)


def recorded(engine: Engine) -> list[ForecastRow]:
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT * FROM forecast ORDER BY made_at")))  # type: ignore[arg-type]


def past_drains(engine: Engine, drains: int, held: float = 1.0) -> None:
    """Earlier drains of a minute, with a forecast each, whose p90 held in this share of them."""
    now = datetime.now(UTC)
    for number in range(drains):
        began = now - timedelta(hours=number + 2)
        slow = 70.0 if number < held * drains else 50.0
        made = {"made_at": began, "began_at": began, "open_jobs": 10, "late_jobs": 0, "p50_seconds": 45.0}
        ended = {"p90_seconds": slow, "ended_at": began + timedelta(seconds=60)}
        with engine.begin() as connection:
            connection.execute(insert(ForecastRow), {**made, **ended})
