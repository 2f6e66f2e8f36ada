"""Time: deadlines refuse, expire and abort; retries back off with jitter; only the database's clock decides."""

from __future__ import annotations

import re
import statistics
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import thothy_ai
from tests.support.queue_bench import Queue, eventually, runner_bench, running
from thothy_ai.errors import InvalidJobError
from thothy_ai.queue.reaper import Reaper

PACKAGE = Path(thothy_ai.__file__).parent
OWN_CLOCK = re.compile(r"datetime\.(now|utcnow|today)\(|time\.time\(")
BASE, CAP = 1000, 1500


def soon(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def test_a_deadline_that_has_passed_is_refused(queue: Queue) -> None:
    with pytest.raises(InvalidJobError, match="has passed"):
        queue.enqueue("ok", deadline=soon(-1))
    with pytest.raises(InvalidJobError, match="is not before the deadline"):
        queue.enqueue("ok", deadline=soon(60), not_before=soon(60))


def test_a_deadline_that_passes_before_the_claim_runs_nothing(queue: Queue) -> None:
    """Its message was on its way, and the reaper has not looked yet."""
    [job_id] = queue.enqueue("ok", deadline=soon(60))
    with runner_bench(queue) as bench:
        hints = queue.dispatch()
        queue.rows("UPDATE job SET deadline = now() - interval '1 ms'")
        for hint in hints:
            bench.runner.hand_over(hint)
        eventually(lambda: bench.done == hints)
        assert bench.client.submitted == []
    assert queue.job(job_id).state == "dispatched"
    with running(Reaper(queue.settings)):
        eventually(lambda: queue.job(job_id).state == "expired")
    assert (queue.job(job_id).attempt, queue.job(job_id).reason) == (0, "deadline")


def test_a_deadline_that_passes_in_the_engine_aborts_it_there(queue: Queue) -> None:
    """`hang` ends by an abort only, and only an abort says what it cost until then."""
    with runner_bench(queue) as bench:
        [job_id] = bench.work("hang on", deadline=soon(60))
        eventually(lambda: bench.client.submitted)
        queue.rows("UPDATE job SET deadline = now()")
        eventually(lambda: queue.job(job_id).state == "expired")
    assert queue.rows("SELECT outcome, compute_seconds FROM attempt") == [("expired", 0.25)]
    assert queue.events(job_id) == ["expired"]


@pytest.mark.parametrize("fault", ["of the engine", "of the worker"])
def test_retries_back_off_with_jitter(queue: Queue, fault: str) -> None:
    """Uniform between nothing and base x 2^failures, at most the cap: jobs that failed together do not return so."""
    changes = {"retry_base_seconds": BASE, "retry_cap_seconds": CAP}
    queue.enqueue(*(f"broken {number}" for number in range(40)))
    for failures, longest in ((1, BASE), (2, CAP)):
        if fault == "of the engine":
            with runner_bench(queue, **changes) as bench:
                bench.hand_over()
                eventually(lambda bench=bench: len(bench.done) == 40)
        else:
            hints = queue.dispatch()
            ids, numbers = [hint.job_id for hint in hints], [hint.dispatch_no for hint in hints]
            gone = {"worker": "gone", "lease_seconds": -1, "engine_session_id": None, "model_name": ""}
            queue.ask("worker/claim", ids=ids, dispatch_nos=numbers, **gone)
            queue.ask("queue/reap_leases", **changes)
        found = waits(queue, failures if fault == "of the worker" else 0)  # a fault of the engine is no failure
        assert len(found) == 40
        assert 0 <= min(found) < longest / 4
        assert longest * 3 / 4 < max(found) <= longest
        assert longest / 10 < statistics.stdev(found)
        queue.rows("UPDATE job SET not_before = now()")


def waits(queue: Queue, failures: int) -> list[float]:
    """Seconds that jobs with so many failures wait for, from the end of their last attempt."""
    query = (
        "SELECT extract(epoch FROM not_before - attempt.finished_at)::float8"
        " FROM job JOIN attempt ON job_id = id AND attempt.attempt = job.attempt"
        " WHERE state = 'queued' AND failures = :n"
    )
    return [row[0] for row in queue.rows(query, n=failures)]


def test_a_lease_is_as_long_as_it_is_by_the_database_s_clock(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's clock is a day ahead."""
    ahead = time.time
    monkeypatch.setattr(time, "time", lambda: ahead() + 86_400)
    with runner_bench(queue, lease_seconds=30) as bench:
        [job_id] = bench.work("hang on")
        eventually(lambda: queue.job(job_id).state == "running")
        [[left]] = queue.rows("SELECT extract(epoch FROM lease_until - now())::float8 FROM job")
    assert 0 < left <= 30


def test_no_part_of_the_queue_path_asks_its_own_clock() -> None:
    """Except Celery's timestamps in Redis, which are its own."""
    files = {
        *(PACKAGE / "worker").rglob("*.py"),
        *(PACKAGE / "queue" / f"{role}.py" for role in ("dispatcher", "reaper", "leader")),
    }
    asking = {file.name for file in files if OWN_CLOCK.search(file.read_text(encoding="utf-8"))}
    assert asking == {"visibility.py"}
