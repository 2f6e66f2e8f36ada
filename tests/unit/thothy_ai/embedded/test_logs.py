"""The logs of a home: the last lines, merged by time; what is added, through rotations; the command that shows them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from thothy_ai.cli import app
from thothy_ai.embedded.logs import Log, log_file, merged

pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("THOTHY_HOME", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")
    (tmp_path / "logs").mkdir()
    return tmp_path


def write(home: Path, service: str, *lines: str) -> None:
    with log_file(home, service).open("a") as log:
        log.writelines(f"{line}\n" for line in lines)


def texts(log: Log) -> list[str]:
    return [line.text for line in log.added()]


def test_lines_of_three_formats_are_merged_by_time(home: Path) -> None:
    write(home, "engine", "2026-11-21 10:00:01,000 INFO a: first", "Traceback", "2026-11-21 10:00:04,000 INFO a: last")
    write(home, "postgres", "2026-11-21 10:00:02.500 UTC [7] LOG:  second")
    write(home, "valkey", "7:M 21 Nov 2026 10:00:03.000 * third", "no date: stays behind it")
    logs = [Log(home, service) for service in ("valkey", "engine", "postgres", "worker")]
    assert [line.text.split(" ")[-1] for line in merged(log.last(50) for log in logs)] == [
        "first", "Traceback", "second", "third", "it", "last",
    ]  # fmt: skip


def test_the_last_lines_of_a_long_log_and_of_the_copy_of_one_just_rotated(home: Path) -> None:
    write(home, "engine", *(f"{number} {'x' * 1000}" for number in range(1000)))
    log = log_file(home, "engine")
    assert [line.text.split()[0] for line in Log(home, "engine").last(200)] == [str(n) for n in range(800, 1000)]
    assert Log(home, "engine").last(0) == []
    log.rename(log.with_name("engine.log.1"))
    write(home, "engine", "new")
    assert [line.text.split()[0] for line in Log(home, "engine").last(3)] == ["998", "999", "new"]


def test_what_is_added_is_read_once_in_whole_lines_through_rotations(home: Path) -> None:
    write(home, "engine", "before")
    log, absent = Log(home, "engine"), Log(home, "worker")
    write(home, "engine", "one", "two")
    assert [line.text for line in log.last(50)] == ["before"]
    assert (texts(log), texts(log), texts(absent)) == (["one", "two"], [], [])
    file = log_file(home, "engine")
    with file.open("a") as opened:
        opened.write("half a ")
    assert texts(log) == []
    write(home, "engine", "line")
    assert texts(log) == ["half a line"]
    file.write_text("")  # truncated by the supervisor
    assert texts(log) == []
    write(home, "engine", "after")
    assert texts(log) == ["after"]
    write(home, "worker", "started late")
    assert texts(absent) == ["started late"]


def test_the_command_prefixes_each_line_with_its_service(home: Path) -> None:
    write(home, "engine", "2026-11-21 10:00:01,000 INFO a: one", "2026-11-21 10:00:02,000 INFO a: \x1b[31mtwo")
    write(home, "reaper", "2026-11-21 10:00:03,000 INFO b: three")
    done = CliRunner().invoke(app, ["logs"])
    assert (done.exit_code, done.stdout.splitlines()) == (
        0,
        [
            "engine     | 2026-11-21 10:00:01,000 INFO a: one",
            "engine     | 2026-11-21 10:00:02,000 INFO a: \ufffd[31mtwo",
            "reaper     | 2026-11-21 10:00:03,000 INFO b: three",
        ],
    )
    assert CliRunner().invoke(app, ["logs", "engine", "-n", "1"]).stdout.count("\n") == 1


def test_an_unknown_service_and_a_home_without_logs(home: Path) -> None:
    unknown = CliRunner().invoke(app, ["logs", "engin"])
    assert unknown.exit_code == 2
    assert "'engin'" in unknown.stderr
    assert "engine, worker, dispatcher, reaper, serve, postgres, valkey" in " ".join(unknown.stderr.split())
    nothing = CliRunner().invoke(app, ["logs"])
    assert (nothing.exit_code, len(nothing.stderr.splitlines())) == (1, 1)
    assert f"no logs in {home / 'logs'}" in nothing.stderr
    write(home, "engine", "something")
    assert "no logs of worker in" in CliRunner().invoke(app, ["logs", "worker"]).stderr
