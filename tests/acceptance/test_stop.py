"""Ctrl-C of a busy `up` or `demo`, as a user presses it: what it says, what it leaves, and that the next start goes on.

No lease runs out in these tests, and no message counts as lost: whatever runs again does so without waiting for either.
"""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support import null_stack
from tests.support.home import Home, fresh_home, processes_of
from tests.support.null_stack import LOADING, NEVER
from tests.support.patience import PATIENCE
from tests.support.queue_bench import eventually
from thothy_ai.demo.plan import demo_jobs
from thothy_ai.embedded import Postgres
from thothy_ai.engine.serving.client import connect
from thothy_ai.errors import ConfigError
from thothy_ai.jobs import Hook
from thothy_ai.producer import Producer
from thothy_ai.settings import Settings

JOBS = 3
PATIENT = {"THOTHY_LEASE_SECONDS": "1000", "THOTHY_DISPATCH_TIMEOUT_SECONDS": "1000"}
STATES = "SELECT state, count(*) FROM job GROUP BY state"
ENDS = "SELECT outcome, count(*) FROM attempt GROUP BY outcome"
USED = "SELECT outcome, count(*) FROM attempt WHERE compute_seconds > 0 GROUP BY outcome"

pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture
def home() -> Iterator[Home]:
    with fresh_home() as home:
        home.environment |= PATIENT
        yield home


@contextmanager
def thothy(home: Home, command: str, latency: float, **settings: float) -> Iterator[subprocess.Popen[str]]:
    """A command over an engine that takes so long for each answer."""
    chosen = {f"THOTHY_{name.upper()}": str(value) for name, value in settings.items()}
    argv = [sys.executable, null_stack.__file__, str(latency), command]
    log = (home.folder / "errors.log").open("a")
    with (
        log,
        subprocess.Popen(argv, env=home.environment | chosen, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def line(process: subprocess.Popen[str], pattern: str) -> str:
    """Read up to the first line that matches."""
    assert process.stdout is not None
    seen = []
    for read in process.stdout:
        if re.search(pattern, read):
            return read.rstrip("\n")
        seen.append(read)
    raise AssertionError(f"it ended without {pattern!r}: {seen}")


def rest(process: subprocess.Popen[str]) -> list[str]:
    """What it says until its end, from when it stops: more of what it says once it is ready may come before."""
    said = process.communicate(timeout=PATIENCE)[0].splitlines()
    return said[next((at for at, each in enumerate(said) if each.startswith("Stop")), 0) :]


def ask(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        return connection.execute(query.encode()).fetchall()


def recorded(folder: Path, *queries: str) -> list[list[tuple[Any, ...]]]:
    """What the record of a stack that has ended holds. Only its Postgres is started: nothing is mended meanwhile."""
    with Postgres(folder / "postgres", log=folder / "logs" / "postgres.log") as postgres:
        return [ask(postgres.url, query) for query in queries]


def database(folder: Path) -> str | None:
    try:
        return Settings.load(home=folder).require_database_url()
    except ConfigError:
        return None


def running(folder: Path) -> int:
    """Jobs that run in the stack of this home; 0 while it starts."""
    url = database(folder)
    return int(ask(url, "SELECT count(*) FROM job WHERE state = 'running'")[0][0]) if url else 0


def make_busy(home: Home, process: subprocess.Popen[str]) -> None:
    line(process, "Ready after")
    with Producer(Settings.load(home=home.folder)) as producer:
        producer.enqueue_many([Hook(source=f"Crocks sold out in town {number}.") for number in range(JOBS)])
    eventually(lambda: running(home.folder) == JOBS)
    eventually(lambda: asyncio.run(in_the_engine(home)) == JOBS)


async def in_the_engine(home: Home) -> int:
    client = connect(Settings.load(home=home.folder).require_engine_url())
    await client.start()
    try:
        return (await client.stats()).scheduler.running
    finally:
        await client.close()


def runs_everything(home: Home) -> None:
    """A new start runs all jobs, each once more, although the lease of the first claim would go on."""
    with thothy(home, "up", 0) as process:
        line(process, "Ready after")
        url = database(home.folder)
        assert url is not None
        eventually(lambda: ask(url, "SELECT count(*) FROM job WHERE finished_at IS NULL") == [(0,)])
        assert ask(url, "SELECT DISTINCT attempt - failures FROM job") == [(1,)]
        process.send_signal(signal.SIGINT)
        assert rest(process)[-1] == "Stopped."
    assert process.returncode == 0


def test_ctrl_c_says_what_it_waits_for_and_releases_what_does_not_finish(home: Home) -> None:
    with thothy(home, "up", NEVER, shutdown_deadline_seconds=1) as process:
        make_busy(home, process)
        process.send_signal(signal.SIGINT)
        first, *others = rest(process)
    assert first == "Stopping: waiting up to 1 s for 3 running jobs; Ctrl-C again stops at once."
    assert [said for said in others if not said.startswith("Releasing 3 jobs")] == [  # it may be over in no time
        "Stopping the engine...",
        "Stopping Valkey and Postgres...",
        "Stopped. 3 jobs are queued for the next start.",
    ]
    assert (process.returncode, processes_of(home)) == (0, [])
    jobs, ends = recorded(home.folder, "SELECT state, failures, attempt FROM job", USED)
    assert jobs == [("queued", 0, 1)] * JOBS
    assert ends == [("released", JOBS)]  # by the worker, with what they had used


def test_a_second_ctrl_c_ends_it_at_once_and_the_next_start_goes_on(home: Home) -> None:
    with thothy(home, "up", NEVER, shutdown_deadline_seconds=1000) as process:
        make_busy(home, process)
        process.send_signal(signal.SIGINT)
        line(process, "waiting up to 1000 s for 3 running jobs")
        assert running(home.folder) == JOBS
        process.send_signal(signal.SIGINT)
        said = rest(process)
    assert "Stopping at once: running jobs go back to the queue; no failure is charged." in said
    assert said[-1] == "Stopped. 3 jobs are queued for the next start."
    assert (process.returncode, processes_of(home)) == (0, [])
    jobs, ends = recorded(home.folder, "SELECT DISTINCT state, failures FROM job", ENDS)
    assert (jobs, ends) == ([("queued", 0)], [("released", JOBS)])
    runs_everything(home)


def test_the_jobs_of_a_stack_that_was_killed_run_at_the_next_start(home: Home) -> None:
    with thothy(home, "up", NEVER) as process:
        make_busy(home, process)
        process.kill()
    eventually(lambda: not processes_of(home))
    assert recorded(home.folder, STATES) == [[("running", JOBS)]]
    runs_everything(home)
    assert recorded(home.folder, "SELECT DISTINCT outcome FROM attempt WHERE attempt = 1") == [[("lost",)]]


def test_ctrl_c_while_it_starts(home: Home) -> None:
    with thothy(home, "up", LOADING) as process:
        line(process, "Starting")
        eventually(lambda: database(home.folder))
        process.send_signal(signal.SIGINT)
        assert rest(process)[-1] == "Stopped."
    assert (process.returncode, processes_of(home)) == (130, [])
    assert not (home.folder / "stack.env").exists()


def test_a_demo_that_is_interrupted_says_so_and_the_next_one_starts_clean(home: Home) -> None:
    everything = len(demo_jobs())
    folder = home.folder / "demo"
    with thothy(home, "demo", NEVER, shutdown_deadline_seconds=1) as process:
        line(process, "Enqueued")
        eventually(lambda: running(folder) == everything)
        process.send_signal(signal.SIGINT)
        said = rest(process)
    text = "\n".join(said)
    assert f"Stopping: waiting up to 1 s for {everything} running jobs;" in text
    assert said[-1] == f"Stopped the demo. {everything} jobs were unfinished; the next demo starts without them."
    assert "draining" not in text
    assert (process.returncode, processes_of(home)) == (130, [])
    kept = folder / "artifacts" / "of-an-earlier-demo.json"
    kept.parent.mkdir(exist_ok=True)
    kept.touch()

    with thothy(home, "demo", 0) as again:
        said = rest(again)
    assert f"Cancelled {everything} jobs that an earlier demo left unfinished." in said
    assert f"Enqueued {everything} jobs." in said
    report = " ".join(" ".join(said).split())
    assert "jobs cancelled 0 0 0 0 0" in report
    assert "jobs still open 0 0 0 0 0" in report
    assert (again.returncode, said[-1].partition(" in ")[0]) == (0, "Done")
    assert kept.exists()
    [[(ended, cancelled)]] = recorded(
        folder, "SELECT count(*) FILTER (WHERE attempt > 0), count(*) FILTER (WHERE state = 'cancelled') FROM job"
    )
    assert (ended, cancelled) == (2 * everything, everything)  # those cancelled had run once, in the first demo


def test_up_refuses_a_kind_that_it_cannot_import_before_it_starts_anything(home: Home) -> None:
    home.environment["THOTHY_KINDS"] = "no_such_kind"
    done = home.run("up")
    assert done.returncode != 0
    [said] = done.stderr.splitlines()
    assert "no_such_kind" in said
    assert "Starting" not in done.stdout
    assert list(home.folder.iterdir()) == []
