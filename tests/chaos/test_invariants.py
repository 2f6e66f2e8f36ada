"""Every invariant can break: a database that violates only it is reported, and a sound one is not."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from thothy_ai.chaos.invariants import INVARIANTS, OVERBILLED, WATCH, violations
from thothy_ai.chaos.kind import Chaos
from thothy_ai.chaos.summary import settle_sessions
from thothy_ai.db.connect import make_engine
from thothy_ai.producer import Producer
from thothy_ai.producer.drafts import EnqueueOptions
from thothy_ai.settings import Settings

JOBS = 3
ANSWER_SECONDS = 0.5
SESSION = "00000000-0000-7000-8000-000000000001"
SOUND = f"""
INSERT INTO engine_session (
    id, model, device, dtype, gpus, num_blocks, block_size, started_at, heartbeat_at, busy_seconds
)
VALUES ('{SESSION}', 'null', 'none', 'none', 0, 0, 16, now(), now() + interval '2 s', 1.5);
UPDATE job SET state = 'succeeded', attempt = 1, finished_at = now();
INSERT INTO attempt (job_id, attempt, tenant, kind, worker, engine_session_id, started_at, outcome, compute_seconds)
SELECT id, 1, tenant, kind, 'w', '{SESSION}', now(), 'succeeded', 0.5 FROM job;
INSERT INTO artifact (job_id, kind, locale, attempt, tenant, verdict, body, text)
SELECT id, kind, 'en', 1, tenant, 'accepted', '{{}}', '' FROM job;
"""
ONCE = "every attempt that was claimed is recorded once, under its number"
BILLED = "what an engine was busy for is billed, attempt by attempt"
COSTLY = "no attempt is billed for more than an answer costs"
ONE = "(SELECT id FROM job ORDER BY id LIMIT 1)"
LOST = f"""
INSERT INTO attempt (job_id, attempt, tenant, kind, worker, started_at, outcome, reason)
SELECT id, 2, tenant, kind, 'w', now(), 'lost', 'lease_lost' FROM job WHERE id = {ONE}"""

BROKEN = {
    "every job that was sent is in the table": f"DELETE FROM job WHERE id = {ONE}",
    "every job has ended": f"UPDATE job SET state = 'queued', finished_at = NULL WHERE id = {ONE}",
    "a job that has ended does not change": (
        f"UPDATE job SET state = 'cancelled', cancel_requested = true WHERE id = {ONE}"
    ),
    "a succeeded job has exactly one artifact, no other has one": f"DELETE FROM artifact WHERE job_id = {ONE}",
    "a succeeded job has exactly one succeeded attempt, its last": f"UPDATE job SET attempt = 2 WHERE id = {ONE}",
    "attempts stay within the limit": LOST,
    ONCE: LOST,
    "a job ends as its request asks for, or says why not": (
        f"UPDATE job_request SET request = jsonb_set(request, '{{verdict}}', '\"rejected\"') WHERE job_id = {ONE}"
    ),
    "each follow-up that an artifact asks for is sent once": (
        f"UPDATE job_request SET request = jsonb_set(request, '{{more}}', '1') WHERE job_id = {ONE}"
    ),
    OVERBILLED: "UPDATE engine_session SET busy_seconds = 1.4",
    BILLED: "UPDATE engine_session SET busy_seconds = 1.6",
    COSTLY: f"UPDATE attempt SET compute_seconds = 0.6 WHERE job_id = {ONE}",
}


@pytest.fixture
def database(settings: Settings) -> Iterator[Engine]:
    """Three jobs that succeeded, watched."""
    chosen = settings.model_copy(update={"tenant": "chaos", "kinds": ("thothy_ai.chaos.kind",)})
    engine = make_engine(chosen)
    with Producer(chosen) as producer:
        producer.enqueue_many(
            [(Chaos(number=n), EnqueueOptions(idempotency_key=f"chaos-{n}")) for n in range(1, JOBS + 1)]
        )
    run(engine, SOUND)
    run(engine, WATCH)
    yield engine
    engine.dispose()


def run(engine: Engine, script: str) -> None:
    with engine.begin() as connection:
        for statement in script.split(";\n") if script is SOUND else [script]:
            if statement.strip():
                connection.execute(text(statement.replace(":", r"\:")))


def broken(engine: Engine) -> set[str]:
    return {violation.invariant for violation in violations(engine, JOBS, ANSWER_SECONDS)}


def test_a_sound_database_breaks_nothing(database: Engine) -> None:
    assert broken(database) == set()


def test_an_unrecorded_attempt_is_reported(database: Engine) -> None:
    run(database, "UPDATE job SET attempt = 2")
    run(database, "UPDATE attempt SET attempt = 2")
    assert ONCE in broken(database)


def test_results_since_the_counters_were_read_are_no_excess(database: Engine) -> None:
    written = "(SELECT max(finished_at) FROM attempt) + interval '0.5 s'"
    run(database, f"UPDATE engine_session SET busy_seconds = 1.4, heartbeat_at = {written}")
    assert OVERBILLED not in broken(database)


@pytest.mark.parametrize(("busy", "wrong"), [(2.0, set()), (2.1, {COSTLY})])
def test_settling_bills_a_lost_attempt_for_one_answer_at_most(database: Engine, busy: float, wrong: set[str]) -> None:
    run(database, LOST.replace("id, 2,", "id, 0,"))
    ran = "started_at = finished_at - interval '3 s'"
    run(database, f"UPDATE attempt SET engine_session_id = '{SESSION}', {ran}")
    run(database, f"UPDATE engine_session SET busy_seconds = {busy}")
    assert BILLED in broken(database)
    assert settle_sessions(database) == pytest.approx(busy - 1.5)
    assert broken(database) & {BILLED, COSTLY} == wrong


@pytest.mark.parametrize("invariant", INVARIANTS)
def test_a_violation_is_reported_under_its_invariant(database: Engine, invariant: str) -> None:
    first: UUID
    with database.connect() as connection:
        first = connection.scalar(text(ONE[1:-1]))
    run(database, BROKEN[invariant])
    found = [violation for violation in violations(database, JOBS, ANSWER_SECONDS) if violation.invariant == invariant]
    assert len(found) == 1
    assert found[0].subject in {str(first), "chaos-1", SESSION, "engine"}
