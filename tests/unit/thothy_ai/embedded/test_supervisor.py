"""The supervisor over small real programs: ready, restarted, given up, stopped."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.engine_process import until_dead
from tests.support.patience import PATIENCE
from thothy_ai.embedded import process
from thothy_ai.embedded.process import Process, Program
from thothy_ai.embedded.supervisor import Patience, Supervisor
from thothy_ai.errors import ServiceStartError

QUICK = Patience(failures=3, first_delay=0.01, max_delay=0.02, check_every=0.01)


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    supervisor = Supervisor(QUICK)
    yield supervisor
    supervisor.stop()


def program(folder: Path, script: str, **more: object) -> Program:
    values = {"ready": lambda: True, "name": "part"} | more
    return Program(argv=("/bin/sh", "-c", script), log=folder / "logs" / "part.log", **values)


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_program_is_ready_when_it_says_so(tmp_path: Path) -> None:
    flag = tmp_path / "ready"
    process = Process(program(tmp_path, f"touch {flag}; exec sleep 60", ready=flag.exists))
    process.start()
    assert flag.exists()
    assert process.alive
    process.stop()
    assert process.exit_code == -15


def test_one_that_ends_before_it_is_ready_is_reported_with_its_error(tmp_path: Path) -> None:
    process = Process(program(tmp_path, "echo 'thothy: no such model: /m' >&2; exit 3", ready=lambda: False))
    with pytest.raises(ServiceStartError, match=r"part ended with status 3: no such model: /m \(log: .*part\.log\)"):
        process.start()


def test_the_end_of_another_is_an_error_at_once(tmp_path: Path) -> None:
    """An engine loads for minutes; that the reaper has ended must not wait for it."""
    loading = Process(program(tmp_path, "exec sleep 60", ready=lambda: False, ready_seconds=60))
    ended = Process(replace(program(tmp_path, "echo 'thothy reaper: no dateutil' >&2; exit 1"), name="reaper"))
    loading.spawn()
    ended.spawn()
    with pytest.raises(ServiceStartError, match=r"^reaper ended with status 1: no dateutil"):
        loading.wait_ready(beside=[ended, loading])
    loading.stop()


def test_what_an_earlier_run_logged_is_no_cause(tmp_path: Path) -> None:
    process = Process(
        program(tmp_path, f"test -e {tmp_path}/ran || echo 'thothy: earlier'; touch {tmp_path}/ran; exit 3")
    )
    for cause in (": earlier", ""):
        process.spawn()
        until(lambda: not process.alive)
        assert process.end_line() == f"part ended with status 3{cause} (log: {process.program.log})"


def test_one_that_was_killed_is_reported_with_the_signal_and_no_line_of_its_log(tmp_path: Path) -> None:
    process = Process(program(tmp_path, "echo 'thothy: a warning from before'; kill -KILL $$"))
    process.spawn()
    until(lambda: not process.alive)
    assert process.end_line() == f"part was killed by SIGKILL (log: {process.program.log})"


def test_one_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    process = Process(program(tmp_path, "exec sleep 60", ready=lambda: False, ready_seconds=0.1))
    with pytest.raises(ServiceStartError, match=r"not ready within 0\.1 s"):
        process.start()
    assert not process.alive


def test_a_missing_program(tmp_path: Path) -> None:
    missing = Program("part", ("/no/such/program",), tmp_path / "part.log", ready=lambda: False)
    with pytest.raises(ServiceStartError, match="/no/such/program"):
        Process(missing).start()


def test_one_that_does_not_listen_is_ended_by_force_with_its_children(tmp_path: Path) -> None:
    child = tmp_path / "child"
    script = f"trap '' TERM; sleep 60 & echo $! > {child}; wait; wait"
    process = Process(program(tmp_path, script, stop_seconds=0.1, ready=lambda: child.exists() and child.read_text()))
    process.start()
    process.stop()
    assert process.exit_code == -9
    pid = int(child.read_text())
    until_dead(pid)


def test_one_that_ends_at_once_in_its_own_way_is_not_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "ABORT_SECONDS", 60)  # however slow the machine
    started = tmp_path / "started"
    script = f"trap 'exit 7' QUIT; trap '' TERM; touch {started}; while :; do sleep 0.02; done"
    for abort_signal, code in ((signal.SIGQUIT, 7), (signal.SIGKILL, -9)):
        part = Process(program(tmp_path, script, ready=started.exists, abort_signal=abort_signal, stop_seconds=0.1))
        part.start()
        part.stop()
        assert part.exit_code == code
        started.unlink()


def test_stopping_twice_or_before_the_start_does_nothing(tmp_path: Path) -> None:
    process = Process(program(tmp_path, "exec sleep 60"))
    process.stop()
    process.start()
    process.stop()
    process.stop()
    assert not process.alive


def test_one_whose_start_is_interrupted_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_orders: object) -> None:
        raise KeyboardInterrupt

    part = Process(program(tmp_path, "exec sleep 60"))
    monkeypatch.setattr(process.futures, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        part.spawn()
    assert part.alive
    part.stop()
    assert not part.alive


def test_one_that_dies_is_started_again(tmp_path: Path, supervisor: Supervisor) -> None:
    process = Process(program(tmp_path, "exec sleep 60"))
    process.start()
    first = process.pid
    supervisor.add(process)
    supervisor.watch()
    process.kill()
    until(lambda: process.pid != first and process.alive)
    assert not supervisor.wait(0)


def test_what_one_leaves_is_cleaned_up_after_each_of_its_deaths_and_once(
    tmp_path: Path, supervisor: Supervisor
) -> None:
    """Postgres may be down just then: it is tried until it succeeds."""
    process = Process(program(tmp_path, "exec sleep 60"))
    process.start()
    died, tried = [process.pid], []

    def clean_up(pid: int) -> bool:
        tried.append(pid)
        return tried.count(pid) == 3

    supervisor.add(process, clean_up)
    supervisor.watch()
    process.kill()
    until(lambda: process.pid != died[0] and process.alive)
    died.append(process.pid)
    process.kill()
    until(lambda: len(tried) == 6)
    until(lambda: process.pid != died[1] and process.alive)
    supervisor.stop()
    assert sorted(tried) == sorted(3 * died)


def test_a_log_is_bounded_in_size(tmp_path: Path, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thothy_ai.embedded.process.MAX_LOG_BYTES", 1000)
    go_on, much = tmp_path / "go-on", tmp_path / "much"
    much.write_bytes(b"x" * 5000)
    # In one write: what came after a rotation would stay below the limit.
    script = f"cat {much}; until test -e {go_on}; do sleep 0.01; done; echo after; exec sleep 60"
    process = Process(program(tmp_path, script))
    process.spawn()
    supervisor.add(process)
    supervisor.watch()
    log = process.program.log
    until(lambda: log.with_name("part.log.1").exists() and log.stat().st_size == 0)
    go_on.touch()
    until(lambda: log.read_text() == "after\n")
    assert log.with_name("part.log.1").stat().st_size > 1000


@pytest.mark.parametrize("step", ["stat", "copyfile", "truncate"])
def test_a_log_that_cannot_be_rotated_ends_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    quiet = Process(program(tmp_path, ":"))
    quiet.program.log.parent.mkdir()
    quiet.program.log.write_bytes(b"x" * 101)
    monkeypatch.setattr(process, "MAX_LOG_BYTES", 100)

    def fails(*_: object, **__: object) -> None:
        raise OSError(step)

    owner = {"stat": Path, "copyfile": process.shutil, "truncate": process.os}[step]
    with monkeypatch.context() as broken:
        broken.setattr(owner, step, fails)
        quiet.bound_log()


def test_one_that_keeps_dying_ends_the_whole_with_its_error(tmp_path: Path, supervisor: Supervisor) -> None:
    process = Process(program(tmp_path, "echo 'thothy: out of memory'; exit 1"))
    process.spawn()
    supervisor.add(process)
    supervisor.watch()
    with pytest.raises(ServiceStartError, match=r"part ended with status 1: out of memory .* 3 times in a row"):
        supervisor.wait(PATIENCE)


def test_delays_grow_up_to_a_limit() -> None:
    patience = Patience(first_delay=0.5, max_delay=15)
    assert [patience.delay(failures) for failures in (1, 2, 3, 6, 7)] == [0.5, 1.0, 2.0, 15.0, 15.0]


def test_processes_are_stopped_last_first(tmp_path: Path) -> None:
    order = tmp_path / "order"
    supervisor = Supervisor(QUICK)
    for name in ("engine", "worker"):
        started = tmp_path / name
        script = f"trap 'echo {name} >> {order}; exit 0' TERM; touch {started}; while :; do sleep 0.02; done"
        process = Process(program(tmp_path, script, ready=started.exists))
        process.start()
        supervisor.add(process)
    supervisor.watch()
    supervisor.stop()
    assert order.read_text().split() == ["worker", "engine"]
    assert supervisor.wait(0)
