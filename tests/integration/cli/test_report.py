"""`thothy drain` and `thothy report`, as they are typed: on empty, paused, delayed and busy queues, in pipes."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, text

from tests.support.command_line import Run, end, enqueue, environment_of, one_line, spawned, typed
from tests.support.command_terminal import on_terminal
from tests.support.engine_rows import register
from tests.support.fake_engine import FakeClient
from tests.support.home import THOTHY
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, eventually, runner_bench
from thothy_ai.db.connect import make_engine

HOUR = timedelta(hours=1)
ONE_RUNS = """
    UPDATE job SET state = 'running', worker = 'w', attempt = 1, started_at = now(),
        lease_until = now() + interval '1 hour'
"""


@contextmanager
def connected(queue: Queue, process: str) -> Iterator[None]:
    """A connection to Postgres as that process has one."""
    engine = make_engine(queue.settings, application=process, pool_size=1)
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        yield
    engine.dispose()


class TestDrain:
    def test_an_empty_queue(self, queue: Queue) -> None:
        assert typed(queue.settings, "drain").stdout == "The queue is empty.\n"
        done = typed(queue.settings, "drain", "--json")
        assert json.loads(done.stdout)["total"]["jobs"]["succeeded"] == 0
        assert done.stderr == ""

    def test_with_since_an_empty_queue_has_a_report(self, queue: Queue) -> None:
        queue.enqueue("done")
        queue.rows("UPDATE job SET state = 'dead', reason = 'x', finished_at = now()")
        done = typed(queue.settings, "drain", "--since", "1h")
        assert "jobs dead or expired" in done.stdout

    def test_jobs_for_later_are_counted_and_not_waited_for(self, queue: Queue) -> None:
        due = datetime.now(UTC) + timedelta(days=2)
        queue.enqueue("later", not_before=due)
        said = typed(queue.settings, "drain").stdout
        day = due.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        assert said == f"1 job is not due before {day}. `thothy drain --include-delayed` waits for it.\n"
        queue.enqueue("even later", not_before=due + HOUR)
        assert f"2 jobs are not due yet, the next at {day}. " in typed(queue.settings, "drain").stdout
        machine = typed(queue.settings, "drain", "--json")
        assert json.loads(machine.stdout)["total"]["jobs"]["queued"] == 2
        assert "2 jobs are not due yet" in machine.stderr

    def test_with_include_delayed_they_are_waited_for_with_a_countdown(self, queue: Queue) -> None:
        queue.enqueue("later", not_before=datetime.now(UTC) + timedelta(days=2, hours=1, minutes=30))
        done = typed(queue.settings, "drain", "--include-delayed", "--timeout", "1s", exit_code=1)
        assert "1 delayed, the next is due in 2 d 01 h" in done.stderr
        assert done.stderr.splitlines()[-1] == "thothy: 1 job is still open after 1.0 s"

    def test_a_job_that_is_due_soon_is_waited_for_and_so_is_a_retry(self, queue: Queue) -> None:
        queue.enqueue("soon", not_before=datetime.now(UTC) + timedelta(seconds=50))
        done = typed(queue.settings, "drain", "--timeout", "1s", exit_code=1)
        assert "1 queued, the next is due in " in done.stderr
        queue.rows("UPDATE job SET attempt = 1, failures = 1, not_before = now() + interval '1 hour'")
        done = typed(queue.settings, "drain", "--timeout", "1s", exit_code=1)
        assert "1 queued, the next is due in " in done.stderr

    def test_a_paused_queue_is_named_at_once(self, queue: Queue) -> None:
        queue.enqueue("one")
        typed(queue.settings, "queue", "pause", "--note", "new image")
        said = typed(queue.settings, "drain", "--timeout", "1s", exit_code=1).stderr.splitlines()
        assert said[0].startswith("The queue has been paused since ")
        assert said[0].endswith("(new image). `thothy queue resume` resumes it.")
        assert said[-1].startswith("thothy: 1 job is still open after 1.0 s. The queue has been paused since ")

    def test_missing_processes_are_named(self, queue: Queue) -> None:
        queue.enqueue("one")
        with spawned(environment_of(queue.settings), "drain") as drain:
            assert drain.stderr is not None
            assert drain.stderr.readline() == "1 queued\n"
            said = "No dispatcher or worker is connected. `thothy doctor` says what to do.\n"
            assert drain.stderr.readline() == said
            drain.send_signal(signal.SIGINT)
            report, said = drain.communicate(timeout=PATIENCE)
        assert (drain.returncode, report) == (130, "")
        assert said == "Stopped watching; the queue keeps draining.\n"

    def test_it_ends_when_only_jobs_are_left_that_no_engine_can_run(self, queue: Queue) -> None:
        register(queue, "a", "small")
        queue.enqueue("one", "two", model="huge")
        said = "2 jobs wait for huge, which no engine serves"
        with connected(queue, "worker"), connected(queue, "dispatcher"):
            queue.enqueue("three", model="small")
            going_on = typed(queue.settings, "drain", "--model-timeout", "0s", "--timeout", "1s", exit_code=1)
            last = going_on.stderr.splitlines()[-1]
            assert last.startswith(f"thothy: 3 jobs are still open after 1.0 s. {said}")
            queue.rows("UPDATE job SET state = 'dead', reason = 'x', finished_at = now() WHERE model = 'small'")
            done = typed(queue.settings, "drain", "--model-timeout", "1s", exit_code=3)
        last = done.stderr.splitlines()[-1]
        assert last.startswith(f"thothy: no engine can run what is left. {said}: start an engine with it, or let")
        assert " · ended with 2 jobs left that no engine can run · " in done.stdout.splitlines()[0]

    def test_a_retry_of_a_model_that_is_gone_is_left_too_and_a_delayed_job_is_waited_for(self, queue: Queue) -> None:
        queue.enqueue("one", model="huge")
        queue.rows("UPDATE job SET attempt = 1, failures = 1, not_before = now() + interval '1 hour', delayed = TRUE")
        typed(queue.settings, "drain", "--model-timeout", "0s", exit_code=3)
        queue.enqueue("later", not_before=datetime.now(UTC) + timedelta(days=2))
        delayed = ("drain", "--model-timeout", "0s", "--include-delayed", "--timeout", "1s")
        typed(queue.settings, *delayed, exit_code=1)

    def test_running_jobs_are_said_to_run(self, queue: Queue) -> None:
        queue.enqueue(*"abc")
        queue.rows(ONE_RUNS + " WHERE id = (SELECT min(id::text)::uuid FROM job)")
        done = typed(queue.settings, "drain", "--timeout", "0s", exit_code=1)
        assert done.stderr.splitlines()[0] == "1 running, 2 queued, none finished yet"

    def test_giving_up_is_in_the_headline(self, queue: Queue) -> None:
        queue.enqueue(*"abc")
        queue.rows(
            "UPDATE job SET state = 'dead', reason = 'x', finished_at = now()"
            " WHERE id = (SELECT min(id::text)::uuid FROM job)"
        )
        done = typed(queue.settings, "drain", "--timeout", "0s", exit_code=1)
        headline = done.stdout.splitlines()[0]
        assert " · gave up after 0.0 s with 2 jobs open · " in headline
        assert "drained in" not in done.stdout
        assert done.stderr.splitlines()[-1] == "thothy: 2 jobs are still open after 0.0 s"
        queue.rows("UPDATE job SET state = 'dead', reason = 'x', finished_at = now() WHERE state = 'queued'")
        ended = typed(queue.settings, "drain", "--timeout", "0s", "--since", "1h")
        assert " · drained in " in ended.stdout.splitlines()[0]

    def test_on_a_terminal_ctrl_c_leaves_one_line(self, queue: Queue) -> None:
        queue.enqueue("one")
        queue.rows(ONE_RUNS)
        with on_terminal([*THOTHY, "drain"], environment_of(queue.settings)) as screen:
            screen.wait_for("1 running, none finished yet")
            screen.interrupt()
            assert screen.ended() == 130
            assert screen.lines[-1].endswith("Stopped watching; the queue keeps draining.")

    def test_what_it_watched_is_reported(self, queue: Queue) -> None:
        queue.enqueue("old", not_before=datetime.now(UTC) + timedelta(days=9))
        queue.rows("UPDATE job SET enqueued_at = now() - interval '9 days'")
        queue.enqueue(*map(str, range(20)))
        days = [datetime.now().astimezone().strftime("%Y-%m-%d")]
        with (
            spawned(environment_of(queue.settings), "drain") as drain,
            runner_bench(queue, FakeClient(delay=0.2)) as bench,
        ):
            assert drain.stderr is not None
            assert drain.stderr.readline() == "20 queued\n"

            def ended() -> bool:
                bench.hand_over()
                return drain.poll() is not None

            eventually(ended)
            report, said = drain.communicate()
        assert drain.returncode == 0, said
        assert re.search(r"^jobs succeeded +20 +20$", report, re.MULTILINE)
        assert report.splitlines()[-1].startswith("1 job is not due before ")
        headline = report.splitlines()[1]
        days.append(datetime.now().astimezone().strftime("%Y-%m-%d"))  # it may be midnight
        assert headline.startswith(tuple(days)), "not from nine days ago"


class TestReport:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--since", "2099-01-01"], "--since 2099-01-01 00:00:00 is in the future"),
            (
                ["--since", "0h"],
                "'--since': '0h' leaves an empty window; examples: 30m, 2h, 3d (see `thothy report --help`)",
            ),
            (["--since", "1h", "--until", "2h"], " must be later than --since "),
            (["--since", "2026-01-02", "--until", "2026-01-01"], "--until 2026-01-01 00:00:00 must be later than"),
        ],
    )
    def test_a_window_that_is_none(self, queue: Queue, arguments: list[str], words: str) -> None:
        line = one_line(typed(queue.settings, "report", *arguments, exit_code=2))
        assert words in line

    def test_until_alone_reports_the_day_before_it(self, queue: Queue) -> None:
        window = json.loads(typed(queue.settings, "report", "--until", "3d", "--json").stdout)
        start, end = (datetime.fromisoformat(window[name]) for name in ("since", "until"))
        assert end - start == timedelta(days=1)

    def test_a_window_without_jobs(self, queue: Queue) -> None:
        said = typed(queue.settings, "report").stdout
        assert said.startswith("No job ended from ")
        assert said.endswith(", and none is open.\n")
        queue.enqueue("one")
        assert typed(queue.settings, "report").stdout.endswith("; 1 job is open (1 queued).\n")


def test_report(run: Run, engine: Engine) -> None:
    end(engine, enqueue(run), "succeeded")
    report = json.loads(run("report", "--since", "2h", "--json").stdout)
    assert report["kinds"]["trend_summary"]["jobs"]["succeeded"] == 1
    assert "trend_summary" in run("report").stdout
    assert "later than --since" in run("report", "--since", "1h", "--until", "2h", exit_code=2).output
