"""Which line of a log is quoted as the cause of an end: one that states a cause, and never an unrelated one."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from thothy_ai.embedded.cause import cause_among, describe_end, describe_os_error, initdb_error

INFO = "2026-11-21 10:00:00,123 INFO thothy_ai.queue.leader: dispatcher: now leading"
SHUT_DOWN = "2026-11-21 10:00:00.124 UTC [7] LOG:  database system is shut down\n"
TRACEBACK = """\
Traceback (most recent call last):
  File "/x/leader.py", line 3, in run
    raise ValueError("the cause")
ValueError: the cause
"""


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (f"{INFO}\nthothy: THOTHY_DATABASE_URL is not set\n", "THOTHY_DATABASE_URL is not set"),
        (f"{INFO}\nthothy engine: no model at /m\n\n", "no model at /m"),
        (f"{INFO}\n{TRACEBACK}", "ValueError: the cause"),
        (f"{TRACEBACK}\nDuring handling:\n\n{TRACEBACK.replace('the cause', 'another')}", "ValueError: another"),
        (
            TRACEBACK.replace("ValueError: the cause", "psycopg.OperationalError: first\nsecond"),
            "psycopg.OperationalError: first",
        ),
        ("2026-11-21 10:00:00,123 CRITICAL thothy_ai.engine: step 7 failed\n", "thothy_ai.engine: step 7 failed"),
        (
            "2026-11-21 10:00:00.123 UTC [7] FATAL:  could not create lock file: No space left on device\n" + SHUT_DOWN,
            "could not create lock file: No space left on device",
        ),
        (
            "7:M 21 Nov 2026 10:00:00.123 # Failed listening on port 6379 (tcp), aborting.\n",
            "Failed listening on port 6379 (tcp), aborting.",
        ),
        ("/no/such/program: No such file or directory\n", "/no/such/program: No such file or directory"),
    ],
)
def test_a_line_that_states_the_cause(log: str, cause: str) -> None:
    assert cause_among(log.splitlines()) == cause


@pytest.mark.parametrize(
    "log",
    [
        "",
        "\n \n",
        INFO,
        f"thothy: an error of before\n{INFO}",
        f"{TRACEBACK}{INFO}",
        "2026-11-21 10:00:00,123 WARNING thothy_ai.worker: heartbeat failed: Postgres cannot be reached",
        "2026-11-21 10:00:00.123 UTC [7] FATAL:  password authentication failed\n" + f"{INFO}\n" * 5,
    ],
)
def test_a_line_that_does_not(log: str) -> None:
    assert cause_among(log.splitlines()) == ""


def test_a_status_is_explained_and_a_signal_is_named(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("thothy: no model\n")
    assert describe_end(2, log) == "ended with status 2: no model"
    assert describe_end(2, log, start=log.stat().st_size) == "ended with status 2"
    assert describe_end(0, log) == "ended with status 0"
    assert describe_end(-9, log) == "was killed by SIGKILL"
    assert describe_end(-64, log) == "was killed by SIGRTMAX"
    assert describe_end(1, tmp_path / "none") == "ended with status 1"


def test_a_long_cause_is_cut_and_a_long_log_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("x" * 100_000 + "\nthothy: " + "y" * 1000)
    assert describe_end(1, log) == "ended with status 1: " + "y" * 300


def test_initdb_s_first_error_is_its_cause() -> None:
    full = (
        'initdb: error: could not create directory "/h/data.new": No space left on device\n'
        'initdb: removing data directory "/h/data.new"\n'
    )
    assert initdb_error(full) == 'could not create directory "/h/data.new": No space left on device'
    bootstrap = (
        '2026-11-21 10:00:00.123 UTC [7] FATAL:  could not write to file "pg_wal/xlogtemp.7": No space left on device\n'
        "child process exited with exit code 1\n"
        'initdb: removing contents of data directory "/h/data.new"\n'
    )
    assert initdb_error(bootstrap) == 'could not write to file "pg_wal/xlogtemp.7": No space left on device'
    extended = (
        '2026-11-21 10:00:00.123 UTC [7] FATAL:  could not extend file "base/1/2691": wrote only 4096 of 8192 bytes\n'
        "2026-11-21 10:00:00.123 UTC [7] HINT:  Check free disk space.\n"
        "child process exited with exit code 1\n"
    )
    assert initdb_error(extended).endswith("wrote only 4096 of 8192 bytes (Check free disk space)")
    assert initdb_error("killed\n") == "killed"
    assert initdb_error("") == "no message"


def test_an_error_of_the_system_is_told_without_its_number() -> None:
    assert (
        describe_os_error(OSError(errno.ENOSPC, "No space left on device", "/h/x")) == "/h/x: No space left on device"
    )
    assert describe_os_error(OSError(errno.EIO, "Input/output error")) == "Input/output error"
    assert describe_os_error(OSError()) == "OSError"
    assert describe_os_error(shutil.Error([("/a", "/b", "No space left on device")])) == "No space left on device"
