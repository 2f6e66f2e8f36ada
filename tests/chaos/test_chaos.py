"""`thothy chaos` from the command line: a short seeded run holds every invariant, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.support.patience import PATIENCE
from tests.support.queue_bench import eventually
from tests.support.server_folder import server_folder
from thothy_ai.chaos.invariants import Violation
from thothy_ai.chaos.options import ChaosOptions
from thothy_ai.chaos.plan import FaultKind
from thothy_ai.chaos.run import ChaosReport, Injected
from thothy_ai.chaos.summary import RunSummary
from thothy_ai.cli import app

THOTHY = [sys.executable, "-m", "thothy_ai.cli", "chaos"]
SEED, JOBS, FAULTS = 4, 2_000, len(FaultKind)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the run makes its home."""
    with server_folder() as made:
        yield made


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


@pytest.mark.parametrize("engines", [1, 2])
def test_a_short_run_holds_every_invariant(environment: dict[str, str], folder: Path, engines: int) -> None:
    done = subprocess.run(
        [*THOTHY, *f"--seed {SEED} --jobs {JOBS} --faults {FAULTS} --engines {engines} --json".split()],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    print(done.stderr)  # noqa: T201 - shown when the test failed
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    summary = report["summary"]
    assert (done.returncode, report["violations"]) == (0, [])
    assert len(report["faults"]) == FAULTS
    not_here = {FaultKind.CLOCK_SKEWED} | ({FaultKind.MACHINE_LOST} if engines == 1 else set())
    assert {fault["fault"] for fault in report["faults"]} >= set(FaultKind) - not_here
    assert (summary["jobs"], summary["missing"], summary["duplicates"], summary["beyond_limit"]) == (JOBS, 0, 0, 0)
    assert sum(summary["states"].values()) == JOBS + summary["follow_ups"]
    assert summary["states"]["succeeded"] > 0.9 * JOBS
    assert summary["billed_seconds"] == pytest.approx(summary["busy_seconds"])
    assert 0 <= summary["wasted_seconds"] < summary["billed_seconds"]
    assert 0 <= summary["divided_seconds"] < summary["billed_seconds"]
    assert list(folder.iterdir()) == []


def test_a_run_that_gives_up_before_its_last_fault_has_proved_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def gives_up(options: ChaosOptions, _tell: object) -> ChaosReport:
        return ChaosReport(options, None, (Injected(0.1, FaultKind.REDIS_CUT, "cut"),), (), None)

    monkeypatch.setattr("thothy_ai.chaos.run.run_chaos", gives_up)
    done = CliRunner().invoke(app, ["chaos", "--faults", "3", "--json"])
    assert done.exit_code == 1
    assert "2 of 3 faults were not injected" in done.stderr
    assert CliRunner().invoke(app, ["chaos", "--faults", "1", "--json"]).exit_code == 0


SUMMARY = RunSummary(
    jobs=10_000, follow_ups=1_234, sent=20_000, lost_in_redis=999, republished=999, attempts=12_345, attempts_lost=99,
    attempts_released=99, results_fenced=9, duplicates=0, missing=0, beyond_limit=0, dead_of_faults=9,
    states={"succeeded": 10_000}, engine_sessions=9, busy_seconds=100.0, billed_seconds=100.0, wasted_seconds=1.0,
    divided_seconds=1.0, baseline_jobs=2_000, baseline_seconds=9.0, faulted_jobs=8_000, faulted_seconds=90.0,
    faulted_seconds_without_faults=36.0,
)  # fmt: skip
ONE_FAULT = (Injected(0.1, FaultKind.REDIS_CUT, "cut"),)
BROKEN = (
    Violation("every job has ended", "019c0000-0000-7000-8000-000000000001", "is queued " + "and queued " * 20),
    Violation("attempts stay within the limit", "b", "4 failures"),
    Violation("every job has ended", "c", "is running"),
)


def verdict(monkeypatch: pytest.MonkeyPatch, violations: tuple[Violation, ...], *options: str) -> Result:
    def ends(options: ChaosOptions, _tell: object) -> ChaosReport:
        return ChaosReport(options, SUMMARY, ONE_FAULT, violations, Path("/logs") if violations else None)

    monkeypatch.setattr("thothy_ai.chaos.run.run_chaos", ends)
    return CliRunner().invoke(app, ["chaos", "--faults", "1", *options])


def test_the_verdict_is_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = verdict(monkeypatch, ())
    assert sound.exit_code == 0
    assert sound.stdout.splitlines()[-1] == (
        "All invariants hold: 10,000 jobs, 1 fault, nothing was lost or done twice."
    )
    assert max(map(len, sound.stdout.splitlines())) <= 80
    assert json.loads(verdict(monkeypatch, (), "--json").stdout)["violations"] == []


def test_violations_are_listed_whole_by_invariant(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = verdict(monkeypatch, BROKEN)
    assert broken.exit_code == 1
    assert broken.stderr == "thothy: 2 invariants are violated; logs are in /logs\n"
    assert "All invariants hold" not in broken.stdout
    listed = broken.stdout[broken.stdout.index("Violated: attempts") :].splitlines()
    assert listed[:2] == ["Violated: attempts stay within the limit", "  b: 4 failures"]
    assert listed[3] == "Violated: every job has ended"
    assert listed[4] == f"  {BROKEN[0].subject}: {BROKEN[0].description}"
    assert verdict(monkeypatch, BROKEN[:1]).stderr.startswith("thothy: 1 invariant is violated; ")


def test_an_interrupted_run_leaves_nothing_behind(environment: dict[str, str], folder: Path) -> None:
    with subprocess.Popen([*THOTHY, "--jobs", "200"], env=environment, stderr=subprocess.PIPE, text=True) as run:
        try:
            assert run.stderr is not None
            assert "without faults" in run.stderr.readline()
            assert processes(bytes(folder))
            run.send_signal(signal.SIGINT)
            assert run.wait(PATIENCE) == 130
        finally:
            run.kill()
    assert list(folder.iterdir()) == []
    eventually(lambda: not processes(bytes(folder)))
