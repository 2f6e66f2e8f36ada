"""What a command says while its stack stops, with and without a terminal, and what its signals do."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from thothy_ai.cli.views import stopping
from thothy_ai.cli.views.stopping import ERASE, StopDisplay, StopRequested
from thothy_ai.embedded.shutdown import Phase, StopProgress

FINISH = [StopProgress(Phase.FINISH, running, seconds_left=left) for running, left in ((12, 5.0), (12, 4.6), (9, 3.9))]
AFTER = [
    StopProgress(Phase.RELEASE, 9),
    StopProgress(Phase.RELEASE, 4),
    StopProgress(Phase.SERVICES),
    StopProgress(Phase.SERVERS, open=41),
]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_without_a_terminal_each_phase_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    display = StopDisplay()
    for progress in (*FINISH, *AFTER):
        display.report(progress)
    display.end("Stopped.")
    assert capsys.readouterr().out.splitlines() == [
        "Stopping: waiting up to 5 s for 12 running jobs; Ctrl-C again stops at once.",
        "Releasing 9 jobs to the queue; no failure is charged.",
        "Stopping the engine...",
        "Stopping Valkey and Postgres...",
        "Stopped.",
    ]
    assert display.open_jobs == 41


def test_a_long_wait_is_told_again(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(stopping.time, "monotonic", lambda: clock[0])
    display = StopDisplay()
    for second in range(8):
        clock[0] = second
        display.report(StopProgress(Phase.FINISH, 1, seconds_left=60 - second))
    assert [line.split(" for ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "Stopping: waiting up to 60 s",
        "Stopping: waiting up to 55 s",
    ]


def test_in_a_terminal_the_countdown_stays_on_its_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping.sys.stdout, "isatty", lambda: True)
    display = StopDisplay()
    for progress in (*FINISH, *AFTER):
        display.report(progress)
    first, *others = capsys.readouterr().out.split("\n")
    *counted, last = first.split(ERASE)[1:]
    assert [text.split(";")[0] for text in counted] == [
        "Stopping: waiting up to 5 s for 12 running jobs",
        "Stopping: waiting up to 4 s for 9 running jobs",
    ]
    assert all(len(text) < 80 for text in counted)
    assert last == "Releasing 9 jobs to the queue; no failure is charged."
    assert others == ["Stopping the engine...", "Stopping Valkey and Postgres...", ""]


def test_idle_unknown_and_single() -> None:
    said = [stopping._text(StopProgress(Phase.FINISH, running, seconds_left=5)) for running in (0, None, 1)]
    assert said[0] == "Stopping: no job is running."
    assert "5 s for running jobs;" in str(said[1])
    assert "5 s for 1 running job;" in str(said[2])
    assert stopping._text(StopProgress(Phase.RELEASE, 0)) is None
    assert str(stopping._text(StopProgress(Phase.RELEASE, 5002))).startswith("Releasing 5,002 jobs to")


@pytest.fixture
def quiet() -> Iterator[StopDisplay]:
    before = {number: signal.signal(number, signal.SIG_DFL) for number in stopping.SIGNALS}  # nohup ignores SIGHUP
    with StopDisplay(always=False) as display:
        yield display
    for number, handler in before.items():  # after a signal they stay ignored: the process is expected to end
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_ends_the_command_and_the_next_hurries_the_stop(
    quiet: StopDisplay, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    for _ in range(2):  # until the stop has begun
        with pytest.raises(StopRequested):
            os.kill(os.getpid(), number)
    assert not quiet.hurry.is_set()
    quiet.begin()
    os.kill(os.getpid(), number)
    assert quiet.hurry.is_set()
    quiet.report(FINISH[0])
    assert "12 running jobs" in capsys.readouterr().out


@pytest.mark.usefixtures("quiet")
def test_one_more_ctrl_c_at_the_end_is_no_error() -> None:
    with pytest.raises(StopRequested), StopDisplay():
        os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)  # would raise if it were handled


def test_a_stop_that_nobody_asked_for_is_silent_in_a_demo(
    quiet: StopDisplay, capsys: pytest.CaptureFixture[str]
) -> None:
    quiet.report(FINISH[0])
    assert capsys.readouterr().out == ""
    assert not quiet.hurry.is_set()


def test_a_terminal_that_was_closed_does_not_stop_the_stop(quiet: StopDisplay, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_text: str) -> None:
        raise OSError("Input/output error")

    display = StopDisplay()
    monkeypatch.setattr(stopping.sys.stdout, "write", closed)
    display.report(FINISH[0])
    display.end("Stopped.")


def test_a_command_under_nohup_goes_on_when_its_terminal_is_closed() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopDisplay():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
