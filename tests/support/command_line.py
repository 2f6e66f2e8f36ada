"""What tests of the commands share: typing a command, and putting jobs into a state."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, insert, update
from typer.testing import CliRunner, Result

from tests.support.home import THOTHY
from thothy_ai.cli import app
from thothy_ai.db.models import ArtifactRow, AttemptRow, JobRow
from thothy_ai.settings import PREFIX, Settings

SOURCE = "Home fermentation has moved from a hobby to a habit, say three makers of clay crocks in Lyon."
Run = Callable[..., Result]


def type_command(
    *arguments: object,
    exit_code: int = 0,
    stdin: str | bytes | None = None,
    environment: Mapping[str, str] | None = None,
) -> Result:
    """Run `thothy` in this process, with these variables beside its own, and check its exit code."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin, env=environment)
    assert done.exit_code == exit_code, done.output
    assert "Traceback" not in done.output
    return done


def typed(settings: Settings, *arguments: object, exit_code: int = 0) -> Result:
    """Run `thothy` in this process with these settings, and check its exit code."""
    return type_command(*arguments, exit_code=exit_code, environment=settings.environment())


def spawned(environment: Mapping[str, str], *arguments: str) -> subprocess.Popen[str]:
    """Start `thothy` with pipes for its standard output and error."""
    return subprocess.Popen(
        [*THOTHY, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def environment_of(settings: Settings) -> dict[str, str]:
    """The environment of a command that uses this test's services, without the variables of who runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return {**kept, **settings.environment()}


def one_line(done: Result) -> str:
    """The one line that a command printed to standard error, without the program's name."""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("thothy: ")
    return lines[0].removeprefix("thothy: ")


def enqueue(run: Run, *options: object) -> UUID:
    """Enqueue a trend summary about SOURCE."""
    return UUID(run("enqueue", "trend_summary", "--source", SOURCE, *options).stdout.strip())


def end(engine: Engine, job_id: UUID, state: str, **values: object) -> None:
    """Put a job into a final state."""
    set_job(engine, job_id, state=state, finished_at=datetime.now(UTC), **values)


def set_job(engine: Engine, job_id: UUID, **values: object) -> None:
    """Change a job's row."""
    with engine.begin() as connection:
        connection.execute(update(JobRow).where(JobRow.id == job_id).values(**values))


def add_attempt(engine: Engine, job_id: UUID, attempt: int = 1, **values: object) -> None:
    """Record an attempt of one second that succeeded."""
    now = datetime.now(UTC)
    row = {
        "job_id": job_id, "attempt": attempt, "tenant": "default", "kind": "trend_summary", "worker": "w@1",
        "started_at": now, "finished_at": now, "outcome": "succeeded",
    }  # fmt: skip
    with engine.begin() as connection:
        connection.execute(insert(AttemptRow), row | values)


def add_artifact(engine: Engine, job_id: UUID, *, locale: str = "en", reason: str | None = None, **values: Any) -> None:
    """Record an output, accepted unless a reason is given."""
    row = {
        "job_id": job_id, "kind": "trend_summary", "locale": locale, "attempt": 1, "tenant": "default",
        "verdict": "rejected" if reason else "accepted", "reason": reason,
        "body": {"headline": "Crocks – à la mode"}, "text": "raw text",
    }  # fmt: skip
    with engine.begin() as connection:
        connection.execute(insert(ArtifactRow), row | values)


def shown(run: Run, job_id: UUID | str) -> dict[str, Any]:
    """A job as `jobs show --json` prints it."""
    job: dict[str, Any] = json.loads(run("jobs", "show", job_id, "--json").stdout)
    return job


def ids_of(run: Run, *arguments: object) -> list[str]:
    """The ids of the jobs, or of the artifacts' jobs, that a list prints as JSON."""
    listed = json.loads(run(*arguments, "--json").stdout)
    return [each.get("id") or each["job_id"] for each in listed]
