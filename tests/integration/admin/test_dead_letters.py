"""Dead letters: found by reason, kind and time; queued again with their history; deleted with all of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text
from typer.testing import CliRunner, Result

from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, eventually, runner_bench
from thothy_ai.admin import dead_letters
from thothy_ai.admin import jobs as admin_jobs
from thothy_ai.admin.dead_letters import Selection
from thothy_ai.cli import app, shell
from thothy_ai.db.statements import statement
from thothy_ai.errors import NotDeadError, UnknownJobError
from thothy_ai.queue.books import close_hours

DAY = timedelta(days=1)
TABLES = ("job", "job_request", "attempt", "artifact", "job_event")
MANY = """
    WITH dead AS (
        INSERT INTO job (id, tenant, kind, source_key, request_digest, max_attempts, state, reason, finished_at)
        SELECT uuidv7(), 't', 'echo', 's', 'd', 3, 'dead', 'empty', now() - n * interval '1 second'
        FROM generate_series(1, :jobs) AS n
        RETURNING id
    )
    INSERT INTO attempt (job_id, attempt, tenant, kind, worker, started_at, outcome)
    SELECT id, 1, 't', 'echo', 'w', now(), 'failed' FROM dead
"""
Run = Callable[..., Result]


@pytest.fixture
def run(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `thothy dead` in this process, on this test's database."""
    monkeypatch.setenv("THOTHY_HOME", str(queue.settings.home))
    monkeypatch.setenv("THOTHY_DATABASE_URL", queue.settings.require_database_url())

    def run(*arguments: object, exit_code: int = 0, stdin: str | None = None) -> Result:
        done = CliRunner().invoke(app, ["dead", *map(str, arguments)], input=stdin)
        assert done.exit_code == exit_code, done.output
        return done

    return run


def killed(queue: Queue, text: str, *, ago: timedelta = timedelta(0), kind: str = "echo") -> UUID:
    """A job that died that long ago, through a fault of its own."""
    [job_id] = queue.enqueue(text)
    with runner_bench(queue) as bench:
        bench.settle()
    queue.rows("UPDATE job SET finished_at = now() - :ago, kind = :kind WHERE id = :id", ago=ago, kind=kind, id=job_id)
    return job_id


def state(queue: Queue, job_id: UUID) -> str:
    found = queue.rows("SELECT state FROM job WHERE id = :id", id=job_id)
    return str(found[0][0]) if found else "gone"


def total(queue: Queue, selection: Selection) -> int:
    return sum(group.jobs for group in dead_letters.groups(queue.engine, selection))


def test_they_are_found_by_reason_kind_and_time(queue: Queue) -> None:
    tired = killed(queue, "retry me")
    hopeless = killed(queue, "hopeless", ago=3 * DAY)
    other = killed(queue, "hopeless too", ago=5 * DAY, kind="poem")
    queue.enqueue("ok")
    now = datetime.now(UTC)

    def found(**wanted: object) -> set[UUID]:
        selection = Selection(**wanted)  # type: ignore[arg-type]
        ids = {job["id"] for job in dead_letters.list_dead(queue.engine, selection)}
        assert total(queue, selection) == len(ids)
        return ids

    assert found() == {tired, hopeless, other}
    assert found(reasons=["prompt_too_long"]) == {hopeless, other}
    assert found(reasons=["prompt_too_long", "repetition"], kinds=["echo"]) == {tired, hopeless}
    assert found(since=now - 4 * DAY) == {tired, hopeless}
    assert found(since=now - 4 * DAY, until=now - DAY) == {hopeless}
    assert found(ids=[tired, other], kinds=["poem"]) == {other}
    assert [job["id"] for job in dead_letters.list_dead(queue.engine, limit=2)] == [tired, hopeless]


def test_a_redriven_job_keeps_its_history_and_has_all_its_failures_before_it(queue: Queue) -> None:
    job_id = killed(queue, "retry me")
    redriven = dead_letters.redrive(queue.engine, Selection([job_id]), by="ada on box", why="new prompt")
    assert redriven == 1
    job = queue.job(job_id)
    assert (job.state, job.failures, job.attempt, job.reason) == ("queued", 0, 3, None)
    with runner_bench(queue) as bench:
        bench.settle()
    job = queue.job(job_id)
    assert (job.state, job.failures, job.attempt) == ("dead", 3, 6)
    assert queue.outcomes(job_id) == ["rejected"] * 6
    assert queue.verdicts(job_id) == ["rejected"] * 6
    assert queue.events(job_id) == ["rejected", "rejected", "dead", "redriven", "rejected", "rejected", "dead"]
    note = queue.rows("SELECT detail FROM job_event WHERE event = 'redriven'")
    assert note == [("by ada on box: new prompt",)]


def test_a_redrive_drops_a_deadline_that_passed_and_takes_a_new_one(queue: Queue) -> None:
    first, second = killed(queue, "hopeless 1"), killed(queue, "hopeless 2")
    queue.rows("UPDATE job SET deadline = now() - interval '1 hour'")
    later = datetime.now(UTC) + DAY
    dead_letters.redrive(queue.engine, Selection([first]), by="me")
    dead_letters.redrive(queue.engine, Selection([second]), by="me", deadline=later)
    assert (queue.job(first).deadline, queue.job(second).deadline) == (None, later)


def test_only_the_dead_are_touched(queue: Queue) -> None:
    [waiting] = queue.enqueue("ok")
    [ended] = queue.enqueue("ok too")
    queue.producer.cancel(ended)
    everything = Selection([waiting, ended, uuid4()])
    assert dead_letters.redrive(queue.engine, everything, by="me") == 0
    assert dead_letters.purge(queue.engine, everything) == 0
    assert (state(queue, waiting), state(queue, ended)) == ("queued", "cancelled")
    with pytest.raises(NotDeadError, match="its state is queued"):
        dead_letters.show(queue.engine, waiting)
    with pytest.raises(UnknownJobError):
        dead_letters.show(queue.engine, uuid4())


def test_a_purge_leaves_nothing_of_a_job_and_all_of_the_others(queue: Queue) -> None:
    job_id, other = killed(queue, "retry me"), killed(queue, "hopeless")
    before = {table: queue.rows(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}
    assert dead_letters.purge(queue.engine, Selection(reasons=["repetition"])) == 1
    after = {table: queue.rows(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}
    gone = {table: before[table] - after[table] for table in TABLES}
    assert gone == {"job": 1, "job_request": 1, "attempt": 3, "artifact": 3, "job_event": 3}
    assert (state(queue, job_id), state(queue, other)) == ("gone", "dead")


def test_usage_stays_recorded_when_the_history_is_purged(queue: Queue) -> None:
    killed(queue, "retry me")
    killed(queue, "hopeless")
    [seconds] = queue.rows("SELECT sum(compute_seconds) AS seconds, count(*) AS attempts FROM attempt")
    assert dead_letters.purge(queue.engine, Selection(reasons=["repetition"])) == 1
    close_hours(queue.engine, open_hours=-1)
    [usage] = queue.rows("SELECT sum(busy_seconds), sum(attempts), sum(dead) FROM usage_by_hour")
    assert tuple(usage) == (seconds.seconds, seconds.attempts, 2)


@pytest.mark.parametrize(("reason", "deaths"), [("engine_killer", 3), ("engine_lost", 0)])
@pytest.mark.parametrize("before", [3, 4], ids=["as often as runs alone", "as often as kills"])
def test_a_killer_of_engines_is_still_one_when_it_is_queued_again(
    queue: Queue, reason: str, deaths: int, before: int
) -> None:
    """It runs alone, and its next kill is its last: a full engine is not put at risk for it."""
    job_id = killed(queue, "hopeless")
    queue.rows("UPDATE job SET engine_deaths = :before, reason = :reason", before=before, reason=reason)
    assert dead_letters.redrive(queue.engine, dead_letters.EVERYTHING, by="me") == 1
    assert queue.job(job_id).engine_deaths == deaths


@pytest.mark.parametrize("change", ["redrive", "purge"])
def test_many_go_in_batches_and_each_is_taken_once(queue: Queue, change: str) -> None:
    queue.rows(MANY, jobs=2_500)
    engine, everything = queue.engine, dead_letters.EVERYTHING
    if change == "redrive":
        assert dead_letters.redrive(engine, everything, by="me", batch=400) == 2_500
        assert queue.count("queued") == 2_500
        transactions = queue.rows("SELECT at, count(*) FROM job_event WHERE event = 'redriven' GROUP BY at")
        assert sorted(jobs for _, jobs in transactions) == [100, *[400] * 6]
    else:
        assert dead_letters.purge(engine, everything, batch=400) == 2_500
        assert queue.rows("SELECT (SELECT count(*) FROM job), (SELECT count(*) FROM attempt)") == [(0, 0)]


def test_two_operators_at_once_share_the_work(queue: Queue) -> None:
    queue.rows(MANY, jobs=2_000)
    redriven: list[int] = []

    def redrive() -> None:
        redriven.append(dead_letters.redrive(queue.engine, dead_letters.EVERYTHING, by="me", batch=100))

    threads = [threading.Thread(target=redrive) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sum(redriven) == 2_000
    assert queue.rows("SELECT count(*) FROM job_event WHERE event = 'redriven'") == [(2_000,)]


def test_the_dead_are_found_without_reading_the_living(queue: Queue) -> None:
    queue.rows(MANY.replace("'dead', 'empty'", "'succeeded', NULL"), jobs=20_000)
    queue.rows(MANY, jobs=50)
    queue.rows("ANALYZE job")
    wanted = Selection(reasons=["empty"]).parameters()
    for name, limit in (
        ("admin/dead_groups", {}),
        ("admin/dead_list", {"limit": 20}),
        ("admin/dead_take", {"limit": 1000}),
    ):
        with queue.engine.connect() as connection:
            explained = connection.execute(text("EXPLAIN " + statement(name).text), wanted | limit)
            plan = "\n".join(explained.scalars())
        assert "ix_job_dead" in plan, plan


def test_cancelling_many_is_one_statement(queue: Queue) -> None:
    waiting, running, ended = queue.enqueue("ok 1", "hang on", "ok 3")
    queue.producer.cancel(ended)
    with runner_bench(queue) as bench:
        bench.runner.hand_over(next(hint for hint in queue.dispatch() if hint.job_id == running))
        eventually(lambda: queue.job(running).state == "running")
        assert admin_jobs.cancel(queue.engine, [waiting, running, ended, waiting, uuid4()]).keys() == {
            waiting,
            running,
        }
        eventually(lambda: queue.job(running).state == "cancelled")
    assert queue.events(waiting) == ["cancelled"]


class TestCommands:
    def test_list_counts_by_reason_and_names_the_latest(self, run: Run, queue: Queue) -> None:
        assert run("list").stdout == "No dead jobs.\n"
        job_id = killed(queue, "hopeless")
        queue.rows("UPDATE job SET detail = :hostile", hostile="\x1b[31m red \x9b2J")
        shown = run("list", "--reason", "prompt_too_long", "--since", "1h")
        assert str(job_id) in shown.stdout
        assert not {"\x1b", "\x9b"} & set(shown.stdout)
        found = json.loads(run("list", "--json").stdout)
        assert (found["total"], found["groups"][0]["reason"], found["jobs"][0]["id"]) == (
            1,
            "prompt_too_long",
            str(job_id),
        )
        assert json.loads(run("list", "--older-than", "1h", "--json").stdout)["total"] == 0

    def test_show(self, run: Run, queue: Queue) -> None:
        job_id = killed(queue, "retry me")
        assert len(json.loads(run("show", job_id, "--json").stdout)["attempts"]) == 3
        assert "repetition" in run("show", job_id).stdout
        [waiting] = queue.enqueue("ok")
        assert "is not dead: its state is queued" in run("show", waiting, exit_code=1).stderr

    def test_redrive_says_who_and_why(self, run: Run, queue: Queue) -> None:
        job_id = killed(queue, "retry me")
        assert run("redrive", "--kind", "echo", "--why", "a better day").stdout == "1 job queued again.\n"
        [[note]] = queue.rows("SELECT detail FROM job_event WHERE event = 'redriven'")
        assert note.startswith("by ")
        assert note.endswith(": a better day")
        assert "the job is not dead" in run("redrive", job_id, exit_code=1).stderr

    def test_purge_asks_for_confirmation(self, run: Run, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
        job_id = killed(queue, "hopeless")
        refused = run("purge", "--all", exit_code=2)
        assert "prompt_too_long" in refused.stdout
        assert "--yes" in refused.stderr
        monkeypatch.setattr(shell, "stdin_is_a_terminal", lambda: True)
        run("purge", "--all", exit_code=1, stdin="n\n")
        assert state(queue, job_id) == "dead"
        assert "Delete 1 job," in run("purge", "--all", stdin="y\n").output
        assert state(queue, job_id) == "gone"
        assert json.loads(run("purge", "--all", "--yes", "--json").stdout) == {"purged": 0}
