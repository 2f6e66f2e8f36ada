"""`thothy queue`: what a pause says the second time, and what its table shows."""

from __future__ import annotations

import json
import re
import signal

import pytest
from sqlalchemy import text

from tests.support.command_line import Run, enqueue, environment_of, one_line, spawned, typed
from tests.support.command_terminal import lines_on_terminal
from tests.support.home import THOTHY
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue

RUNS = """
    UPDATE job SET state = 'running', worker = 'w', attempt = 1, started_at = now(),
        lease_until = now() + make_interval(secs => :seconds)
"""

MANY = """
    INSERT INTO job (id, tenant, kind, source_key, request_digest, max_attempts, deadline, not_before, enqueued_at)
    SELECT gen_random_uuid(), 't', 'echo', 's', 'd', 3, now() + interval '30 min', past, past
    FROM generate_series(1, :jobs), (SELECT now() - interval '40 d' AS past) AS long_ago
"""


def note(queue: Queue) -> tuple[bool, str | None]:
    now = json.loads(typed(queue.settings, "queue", "status", "--json").stdout)
    return now["paused"], now["note"]


def since(queue: Queue) -> str:
    return str(json.loads(typed(queue.settings, "queue", "status", "--json").stdout)["changed_at"])


def test_a_second_pause_keeps_the_note_and_the_time(queue: Queue) -> None:
    assert typed(queue.settings, "queue", "pause", "--note", "new image").stdout.startswith("Paused. ")
    first = since(queue)
    again = typed(queue.settings, "queue", "pause").stdout
    assert again.startswith("Already paused since ")
    assert "(new image). `thothy queue resume`" in again
    assert (note(queue), since(queue)) == ((True, "new image"), first)
    assert "; the note is now: newer image." in typed(queue.settings, "queue", "pause", "--note", "newer image").stdout
    assert (note(queue), since(queue)) == ((True, "newer image"), first)


def test_resume_says_what_it_ended(queue: Queue) -> None:
    assert typed(queue.settings, "queue", "resume").stdout == "The queue was not paused.\n"
    typed(queue.settings, "queue", "pause", "--note", "new image")
    resumed = typed(queue.settings, "queue", "resume").stdout
    assert resumed.startswith("Resumed. The queue had been paused since ")
    assert "(new image)" in resumed
    assert note(queue) == (False, None)
    typed(queue.settings, "queue", "pause")
    assert note(queue) == (True, None)  # the note of the pause before is not its note


def test_pausing_and_waiting_counts_in_words(queue: Queue) -> None:
    queue.enqueue("one")
    queue.rows(RUNS, seconds=60)
    late = typed(queue.settings, "queue", "pause", "--wait", "--timeout", "0", exit_code=1)
    assert late.stdout == "Paused.\n1 job is still running …\n"
    assert one_line(late) == "1 job is still running after 0 s; the queue stays paused"
    again = typed(queue.settings, "queue", "pause", "--wait", "--timeout", "0s", exit_code=1)
    assert one_line(again) == one_line(late)
    queue.rows("UPDATE job SET state = 'queued', worker = NULL, lease_until = NULL")
    idle = typed(queue.settings, "queue", "pause", "--wait").stdout
    assert "No job is running, and 1 job waits. `thothy queue resume`" in idle


def test_ctrl_c_while_it_waits_says_that_the_queue_stays_paused(queue: Queue) -> None:
    queue.enqueue("one")
    queue.rows(RUNS, seconds=60)
    with spawned(environment_of(queue.settings) | {"PYTHONUNBUFFERED": "1"}, "queue", "pause", "--wait") as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "Paused.\n"
        assert waiting.stdout.readline() == "1 job is still running …\n"
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate(timeout=PATIENCE)
    assert (waiting.returncode, said) == (130, "Stopped waiting; the queue stays paused.\n")
    assert note(queue) == (True, None)


def test_status_fits_80_columns(queue: Queue) -> None:
    queue.enqueue("one")
    queue.rows(RUNS, seconds=-60)
    queue.rows(MANY, jobs=12_345)
    typed(queue.settings, "queue", "pause", "--note", "new image")
    lines = lines_on_terminal([*THOTHY, "queue", "status"], environment_of(queue.settings))
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("The queue has been paused since ")
    assert any(re.fullmatch(r"queued +12,345 +40 d 00 h +0 +12,345 +12,345", line) for line in lines)
    assert lines[-1] == "1 lease expired. `thothy doctor --only queue` says why."


@pytest.mark.parametrize("paused", [False, True])
def test_status_of_an_empty_queue(queue: Queue, paused: bool) -> None:
    if paused:
        typed(queue.settings, "queue", "pause")
    with queue.engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM job")) == 0
    lines = typed(queue.settings, "queue", "status").stdout.splitlines()
    assert lines[-1] == "The queue is empty."
    assert len(lines) == 1 + paused


def test_pause_status_resume(run: Run) -> None:
    assert "The queue is empty" in run("queue", "status").stdout
    enqueue(run, "--deadline", "30m")
    enqueue(run, "--not-before", "2h")
    run("queue", "pause", "--note", "GPU maintenance")
    status = json.loads(run("queue", "status", "--json").stdout)
    assert (status["paused"], status["note"], status["open"]) == (True, "GPU maintenance", 2)
    assert (status["states"]["queued"]["due_1h"], status["states"]["queued"]["delayed"]) == (1, 1)
    assert "GPU maintenance" in run("queue", "status").stdout
    run("queue", "resume")
    assert json.loads(run("queue", "status", "--json").stdout)["paused"] is False
