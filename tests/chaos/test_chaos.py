"""`thothy chaos` as a person types it: a short seeded run holds every invariant, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

THOTHY = [sys.executable, "-m", "thothy_ai.cli", "chaos"]
JOBS, FAULTS = 600, 12


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Nothing of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("THOTHY_")}
    return {**kept, "THOTHY_HOME": str(tmp_path / "home")}


def homes() -> set[Path]:
    return set(Path("/tmp").glob("thothy-chaos-*"))


def processes(words: bytes) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if words in (process / "environ").read_bytes() + (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:
            continue
    return found


def test_a_short_run_holds_every_invariant(environment: dict[str, str]) -> None:
    before = homes()
    done = subprocess.run(
        [*THOTHY, "--seed", "4", "--jobs", str(JOBS), "--faults", str(FAULTS), "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    print(done.stderr)  # noqa: T201 - shown when the test failed
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stdout)
    ledger = report["ledger"]
    assert report["violations"] == []
    assert len(report["faults"]) == FAULTS
    assert (ledger["jobs"], ledger["missing"], ledger["duplicates"], ledger["beyond_limit"]) == (JOBS, 0, 0, 0)
    assert sum(ledger["states"].values()) == JOBS + ledger["follow_ups"]
    assert ledger["states"]["succeeded"] > 0.9 * JOBS
    assert ledger["booked_seconds"] == pytest.approx(ledger["busy_seconds"] - ledger["wasted_seconds"])
    assert homes() == before


def test_an_interrupted_run_leaves_nothing_behind(environment: dict[str, str]) -> None:
    before = homes()
    with subprocess.Popen([*THOTHY, "--jobs", "200"], env=environment, stderr=subprocess.PIPE, text=True) as run:
        try:
            assert run.stderr is not None
            assert "without faults" in run.stderr.readline()
            [home] = homes() - before
            assert processes(str(home).encode())
            run.send_signal(signal.SIGINT)
            assert run.wait(60) == 1
        finally:
            run.kill()
    assert homes() == before
    end = time.monotonic() + 10
    while left := processes(str(home).encode()):
        assert time.monotonic() < end, f"still there: {left}"
        time.sleep(0.05)
