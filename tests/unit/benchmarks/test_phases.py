"""Phases end in time or with an error that says how far they were; a failed stack's logs are quoted."""

from __future__ import annotations

import re
import signal
import threading
from pathlib import Path

import pytest

from benchmarks import phases
from benchmarks.phases import Phases, PhaseTimeoutError, logs_in_errors

FOR_EVER = 60.0  # seconds: longer than any limit here


def test_a_phase_says_that_it_began_and_how_long_it_took(capsys: pytest.CaptureFixture[str]) -> None:
    with Phases(FOR_EVER).phase("warm-up"):
        pass
    said = capsys.readouterr().err.splitlines()
    assert said[0].endswith("s] warm-up ...")
    assert re.search(r"s\] warm-up: took \d+\.\d s$", said[1])
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_one_that_takes_long_says_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "EVERY_SECONDS", 0.01)
    asked = threading.Event()

    def state() -> str:
        asked.set()
        return "3 of 8 ended"

    with Phases(FOR_EVER).phase("measured", state):
        assert asked.wait(FOR_EVER)
    assert re.search(r"measured: \d+ s so far, 3 of 8 ended", capsys.readouterr().err)


def test_one_that_takes_too_long_is_an_error() -> None:
    with (
        pytest.raises(PhaseTimeoutError, match=r"^starting: not done after 0\.05 s, waiting$"),
        Phases(0.05).phase("starting", lambda: "waiting"),
    ):
        threading.Event().wait(FOR_EVER)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_the_last_lines_of_all_logs_precede_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "logs").mkdir()
    lines = [f"line {number}" for number in range(40)]
    (tmp_path / "logs" / "engine.log").write_text("\n".join(lines))
    (tmp_path / "logs" / "worker.log").touch()
    with pytest.raises(PhaseTimeoutError), logs_in_errors(tmp_path):
        raise PhaseTimeoutError("late")
    said = capsys.readouterr().err.splitlines()
    assert said == [*(f"engine | {line}" for line in lines[-15:]), "worker | (nothing written)"]
