"""Jobs of the producer against a real Postgres: found by id, waited for, and cancelled."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, text

from tests.support.patience import PATIENCE
from thothy_ai.db.states import JobState
from thothy_ai.errors import (
    InvalidJobError,
    JobCancelledError,
    JobExpiredError,
    JobFailedError,
    ResultTimeoutError,
    UnknownJobError,
    UnreadableArtifactError,
)
from thothy_ai.jobs import Hook, HookArtifact
from thothy_ai.jobs.kinds.hook import Variant
from thothy_ai.producer import Job, Producer

SOURCE = "Fermentation crocks sold out in March. Makers say that the waiting list is now nine weeks long."


def run(engine: Engine, statement: str, **parameters: object) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement), parameters)


def end(engine: Engine, job: Job, state: str, reason: str | None = None) -> None:
    run(
        engine,
        "UPDATE job SET state = :state, reason = :reason, finished_at = now() WHERE id = :id",
        state=state,
        reason=reason,
        id=job.id,
    )


def accept(engine: Engine, job: Job, body: str) -> None:
    end(engine, job, "succeeded")
    run(
        engine,
        "INSERT INTO artifact (job_id, kind, locale, attempt, tenant, verdict, body, text)"
        " VALUES (:id, :kind, 'en', 1, 'default', 'accepted', CAST(:body AS jsonb), '')",
        id=job.id,
        kind=job.kind,
        body=body,
    )


def events(engine: Engine) -> list[tuple[UUID, str]]:
    with engine.connect() as connection:
        return [(row.job_id, row.event) for row in connection.execute(text("SELECT job_id, event FROM job_event"))]


def test_jobs_are_found_by_id(producer: Producer) -> None:
    made = producer.enqueue(Hook(source=SOURCE))
    for job_id in (made.id, str(made.id)):
        found = producer.job(job_id)
        assert (found.id, found.kind) == (made.id, "hook")


def test_unknown_and_malformed_ids(producer: Producer) -> None:
    with pytest.raises(UnknownJobError):
        producer.job(UUID(int=7))
    with pytest.raises(InvalidJobError, match="'seven' is not a job id"):
        producer.job("seven")


def test_a_result_is_the_kind_s_artifact(producer: Producer, engine: Engine) -> None:
    job = producer.enqueue(Hook(source=SOURCE))
    with pytest.raises(ResultTimeoutError, match="still queued"):
        job.result(timeout=0.05)
    artifact = HookArtifact(variants=(Variant(angle="a figure", text="Nine weeks for a crock."),))
    accept(engine, job, artifact.model_dump_json())
    assert job.result(timeout=PATIENCE) == artifact


def test_an_artifact_of_another_schema_is_unreadable(producer: Producer, engine: Engine) -> None:
    job = producer.enqueue(Hook(source=SOURCE))
    accept(engine, job, '{"shape": "of 1998"}')
    with pytest.raises(UnreadableArtifactError, match=str(job.id)):
        job.result(timeout=PATIENCE)


@pytest.mark.parametrize(
    ("state", "error"), [("dead", JobFailedError), ("cancelled", JobCancelledError), ("expired", JobExpiredError)]
)
def test_a_job_that_ended_without_an_artifact_says_why(
    producer: Producer, engine: Engine, state: str, error: type[Exception]
) -> None:
    job = producer.enqueue(Hook(source=SOURCE))
    end(engine, job, state, reason="wrong_language")
    with pytest.raises(error, match=f"{state} .wrong_language") as caught:
        job.result(timeout=PATIENCE)
    assert (caught.value.state, caught.value.reason) == (state, "wrong_language")


def test_a_waiting_job_is_cancelled_immediately_and_once(producer: Producer, engine: Engine) -> None:
    job = producer.enqueue(Hook(source=SOURCE))
    assert job.cancel()
    assert job.state() is JobState.CANCELLED
    assert not job.cancel()
    assert events(engine) == [(job.id, "cancelled")]


def test_cancelling_a_running_job_requests_a_stop(producer: Producer, engine: Engine) -> None:
    job = producer.enqueue(Hook(source=SOURCE))
    run(engine, "UPDATE job SET state = 'running', worker = 'w', lease_until = now(), started_at = now()")
    assert job.cancel()
    snapshot = job.refresh()
    assert (snapshot.state, snapshot.cancel_requested) == (JobState.RUNNING, True)
    assert events(engine) == []


def test_cancelling_an_unknown_job(producer: Producer) -> None:
    with pytest.raises(UnknownJobError):
        producer.cancel(uuid4())
