"""`thothy top`: one frame in a pipe, a live one on a terminal that q and Ctrl-C end, over real servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.command_terminal import on_terminal
from tests.support.home import THOTHY
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, eventually, runner_bench
from tests.support.served_engine import served
from tests.support.worker_fleet import environment
from thothy_ai.admin.top.queue import Paced, QueueSource
from thothy_ai.cli import app
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.queue.control import set_paused

URL = "THOTHY_ENGINE_URL"


@pytest.fixture
def engine_url(tmp_path: Path) -> Iterator[str]:
    backend = NullEngine()
    url = f"unix://{tmp_path}/e.sock"
    with served(backend, url):
        yield url
    backend.stop()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part is shown, however slow the machine."""
    monkeypatch.setattr("thothy_ai.cli.commands.top.FIRST_SECONDS", PATIENCE)


def frame(env: dict[str, str], *options: str) -> str:
    done = CliRunner().invoke(app, ["top", *options], env=env)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_frame_has_queue_workers_engine_and_the_last_hour(queue: Queue, engine_url: str) -> None:
    env = environment(queue.settings) | {URL: engine_url}
    with runner_bench(queue) as bench:
        bench.work("ok one", "ok two", "hopeless case")
        bench.settle()
        queue.enqueue("waits", "waits too")
        set_paused(queue.engine, paused=True, note="lunch")
        eventually(lambda: json.loads(frame(env, "--json"))["workers"]["workers"] == 1)
        text, values = frame(env), json.loads(frame(env, "--json"))
    assert "1 connected" in text
    assert "lunch" in text
    assert "null" in text
    assert "form yield 66.7%, clean yield 66.7%: 2 of 3 jobs with output" in text
    assert "1 of 3 attempts without an artifact" in text
    assert "1 rejected: prompt_too_long" in text
    assert len(text.splitlines()) <= 24
    assert max(map(len, text.splitlines())) <= 80
    assert values["record"]["queue"]["open"] == 2
    assert values["record"]["queue"]["status"]["paused"] is True
    assert values["record"]["hour"]["reasons"] == [["rejected: prompt_too_long", 1]]
    assert not values["engine"]["output_tokens_per_second"]  # unknown after a single reading
    assert values["unreachable"] == {}


def test_parts_that_are_away_say_so_and_come_back(queue: Queue, engine_url: str) -> None:
    env = environment(queue.settings) | {URL: engine_url}
    del env["THOTHY_DATABASE_URL"], env["THOTHY_REDIS_URL"]
    away = json.loads(frame(env | {URL: "unix:///nowhere/e.sock"}, "--json"))
    assert (away["record"], away["workers"], away["engine"]) == (None, None, None)
    assert "THOTHY_DATABASE_URL is not set" in away["unreachable"]["record"]
    assert "not connected to the engine at unix:///nowhere/e.sock" in away["unreachable"]["engine"]
    with on_terminal([*THOTHY, "top"], env) as screen:
        screen.wait_for("Queue", "THOTHY_DATABASE_URL is not set", "null")
        Path(env["THOTHY_HOME"]).mkdir(exist_ok=True)
        urls = f"THOTHY_DATABASE_URL='{queue.settings.require_database_url()}'\n"
        (Path(env["THOTHY_HOME"]) / "stack.env").write_text(urls)  # as a stack does that starts meanwhile
        screen.wait_for("oldest")
        screen.press("q")
        assert screen.ended() == 0
        assert "Traceback" not in screen.text


def test_ctrl_c_ends_it_with_success_and_leaves_the_terminal_as_it_was(queue: Queue) -> None:
    with on_terminal([*THOTHY, "top"], environment(queue.settings)) as screen:
        screen.wait_for("oldest")
        screen.interrupt()
        assert screen.ended() == 0
        assert screen.text.endswith("\x1b[?25h\x1b[?1049l")  # cursor and screen are back


def test_a_read_that_is_slow_is_repeated_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("thothy_ai.admin.top.queue.time.monotonic", lambda: clock[0])
    reads: list[float] = []

    def slow() -> int:
        reads.append(clock[0])
        clock[0] += 0.5
        return len(reads)

    paced: Paced[int] = Paced(slow, 1.0)
    for _ in range(30):
        paced.value()
        clock[0] += 1.0
    assert [later - earlier for earlier, later in pairwise(reads)] == [10.5, 10.5]


def test_rate_and_time_to_go_are_those_of_the_last_minute(queue: Queue) -> None:
    queue.enqueue("a", "b", "c", "d")
    queue.rows(
        "UPDATE job SET state = 'succeeded', finished_at = now() - interval '20 seconds'"
        " WHERE id = (SELECT id FROM job ORDER BY id LIMIT 1)"
    )
    queue.rows("UPDATE job SET not_before = now() + interval '1 day' WHERE id = (SELECT max(id::text)::uuid FROM job)")
    record = QueueSource(queue.settings)
    figures: Any = record.read().queue
    record.close()
    [(ago,)] = queue.rows("SELECT extract(epoch FROM now() - min(finished_at))::float8 FROM job")
    assert 1 / ago <= figures.jobs_per_second <= 1 / 20  # one since it ended, which was 20 to `ago` seconds before
    assert (figures.due, figures.delayed) == (2, 1)
    assert figures.seconds_to_go == pytest.approx(2 / figures.jobs_per_second)
