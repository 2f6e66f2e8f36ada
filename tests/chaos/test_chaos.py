"""`thothy chaos` from the command line: a short seeded run holds every invariant, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from thothy_ai.chaos.options import ChaosOptions
from thothy_ai.chaos.plan import FaultKind
from thothy_ai.chaos.run import Injected, Report
from thothy_ai.cli import app

THOTHY = [sys.executable, "-m", "thothy_ai.cli", "chaos"]
SEED, JOBS, FAULTS = 4, 2_000, len(FaultKind)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the run makes its home: a server that runs as the user nobody can reach it, unlike pytest's folder."""
    with tempfile.TemporaryDirectory(prefix="thothy-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def environment(folder: Path) -> dict[str, str]:
    """Without the THOTHY_ variables of the process that runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("THOTHY_")}
    return {**kept, "TMPDIR": str(folder), "THOTHY_HOME": str(folder / "none")}


def processes(words: bytes) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if words in (process / "environ").read_bytes() + (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:
            continue
    return found


def test_a_short_run_holds_every_invariant(environment: dict[str, str], folder: Path) -> None:
    done = subprocess.run(
        [*THOTHY, "--seed", str(SEED), "--jobs", str(JOBS), "--faults", str(FAULTS), "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    print(done.stderr)  # noqa: T201 - shown when the test failed
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stdout)
    summary = report["summary"]
    assert report["violations"] == []
    assert len(report["faults"]) == FAULTS
    assert {fault["fault"] for fault in report["faults"]} >= set(FaultKind) - {FaultKind.CLOCK_SKEWED}
    assert (summary["jobs"], summary["missing"], summary["duplicates"], summary["beyond_limit"]) == (JOBS, 0, 0, 0)
    assert sum(summary["states"].values()) == JOBS + summary["follow_ups"]
    assert summary["states"]["succeeded"] > 0.9 * JOBS
    assert summary["billed_seconds"] == pytest.approx(summary["busy_seconds"])
    assert 0 <= summary["wasted_seconds"] < summary["billed_seconds"]
    assert 0 <= summary["divided_seconds"] < summary["billed_seconds"]
    assert list(folder.iterdir()) == []


def test_a_run_that_gives_up_before_its_last_fault_has_proved_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def gives_up(options: ChaosOptions, _tell: object) -> Report:
        return Report(options, None, (Injected(0.1, FaultKind.REDIS_CUT, "cut"),), (), None)

    monkeypatch.setattr("thothy_ai.chaos.run.run_chaos", gives_up)
    done = CliRunner().invoke(app, ["chaos", "--faults", "3", "--json"])
    assert done.exit_code == 1
    assert "2 of 3 faults were not injected" in done.stderr
    assert CliRunner().invoke(app, ["chaos", "--faults", "1", "--json"]).exit_code == 0


def test_an_interrupted_run_leaves_nothing_behind(environment: dict[str, str], folder: Path) -> None:
    with subprocess.Popen([*THOTHY, "--jobs", "200"], env=environment, stderr=subprocess.PIPE, text=True) as run:
        try:
            assert run.stderr is not None
            assert "without faults" in run.stderr.readline()
            assert processes(bytes(folder))
            run.send_signal(signal.SIGINT)
            assert run.wait(60) == 1
        finally:
            run.kill()
    assert list(folder.iterdir()) == []
    end = time.monotonic() + 10
    while left := processes(bytes(folder)):
        assert time.monotonic() < end, f"still there: {left}"
        time.sleep(0.05)
