"""Loading shows a bar on a terminal, and lines in a log."""

from __future__ import annotations

import io
import logging
import re

import pytest

from thothy_ai.engine.process import progress
from thothy_ai.engine.process.progress import LoadingProgress

GB = 10**9


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time is what stands first in it."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def run(stream: io.StringIO, clock: list[float], seconds: int = 12) -> None:
    """One gigabyte per second, reported four times in each."""
    clock[0] = 70  # what comes before the weights takes its time
    shown = LoadingProgress(stream)
    with shown.showing():
        clock[0] = 100
        shown(0, seconds * GB)
        for quarter in range(1, 4 * seconds + 1):
            clock[0] = 100 + quarter / 4
            shown(quarter * GB // 4, seconds * GB)


def test_a_bar_on_a_terminal(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    screen = Terminal()
    with caplog.at_level(logging.INFO):
        run(screen, clock)
    bars = screen.getvalue().split("\r\x1b[K")
    assert bars[-1] == "", "it is removed"
    halfway = next(bar for bar in bars if "6.0 of" in bar)
    assert re.fullmatch(r"Loading weights █{18}░{19} 6\.0 of 12\.0 GB, 1\.0 GB/s", halfway)
    assert len(bars) == 1 + 4 * 12 + 1
    assert [record.message for record in caplog.records] == ["read 12.00 GB of weights in 12.0 s, 1.00 GB/s"]


def test_lines_elsewhere(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    stream = io.StringIO()
    with caplog.at_level(logging.INFO):
        run(stream, clock)
    assert stream.getvalue() == ""
    assert [record.message for record in caplog.records] == [
        "loading weights: 5.0 of 12.0 GB, 1.0 GB/s",
        "loading weights: 10.0 of 12.0 GB, 1.0 GB/s",
        "read 12.00 GB of weights in 12.0 s, 1.00 GB/s",
    ]


def test_a_load_that_fails_says_nothing_was_read(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    screen = Terminal()
    with caplog.at_level(logging.INFO), pytest.raises(OSError, match="no"), LoadingProgress(screen).showing():
        raise OSError("no")
    assert screen.getvalue() == "\r\x1b[K"
    assert caplog.records == []
