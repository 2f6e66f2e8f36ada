"""`run_chaos`: a drain without faults, a drain with faults, then the invariants and the summary.

baseline: a part of the jobs, without faults                      how fast the stack is
faulted: the rest, a fault whenever its share of them has ended   or when the drain stands still for too long
settled: everything undone, nothing open                          invariants, summary
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import text

from thothy_ai.chaos.faults import Faults
from thothy_ai.chaos.invariants import OVERBILLED, WATCH, Violation, violations
from thothy_ai.chaos.options import NULL_LATENCY, ChaosOptions
from thothy_ai.chaos.plan import Fault, FaultKind, draw_plan
from thothy_ai.chaos.rig import Rig
from thothy_ai.chaos.summary import Drains, FencedResults, RunSummary, read_summary, settle_sessions
from thothy_ai.chaos.workload import ChaosWorkload

POLL_SECONDS = 0.1
UNREACHABLE_FACTOR = 3  # multiplies the patience while Postgres is unreachable
SETTLE_SECONDS = 30.0
NOW = text("SELECT clock_timestamp()")
ALL_BEAT = text("SELECT coalesce(bool_and(heartbeat_at > :since), true) FROM engine_session WHERE ended_at IS NULL")

ReportProgress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault that was injected: when (seconds since the faulted drain began), which, and what it did."""

    seconds: float
    fault: str
    did: str


@dataclass(frozen=True, slots=True)
class ChaosReport:
    """A run's outcome. `logs` is the folder of the logs, which are kept if an invariant is violated."""

    options: ChaosOptions
    summary: RunSummary
    faults: tuple[Injected, ...]
    violations: tuple[Violation, ...]
    logs: Path | None

    @property
    def not_injected(self) -> int:
        """How many of the requested faults were not injected before the run gave up."""
        return self.options.faults - len(self.faults)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def run_chaos(options: ChaosOptions, report_progress: ReportProgress = lambda _: None) -> ChaosReport:
    """Run to the end. Nothing is kept, except the logs if an invariant is violated."""
    home = Path(tempfile.mkdtemp(prefix="thothy-chaos-"))
    home.chmod(0o755)  # a Postgres that runs as the user nobody must reach it
    keep = False
    try:
        with Rig(home, options) as rig, ChaosWorkload(rig.settings, options.jobs) as workload:
            report = _Run(options, rig, workload, report_progress).run()
        keep = bool(report.violations)
        return report
    finally:
        for path in home.iterdir() if keep else (home,):
            if path.name != "logs":
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


class _Run:
    """One run over a rig that is ready."""

    def __init__(
        self, options: ChaosOptions, rig: Rig, workload: ChaosWorkload, report_progress: ReportProgress
    ) -> None:
        self._options = options
        self._rig = rig
        self._workload = workload
        self._report_progress = report_progress
        self._faults = Faults(rig, options.away_seconds)
        self._fenced = FencedResults(rig)
        self._injected: list[Injected] = []
        self._gives_up_at = time.monotonic() + options.minutes * 60

    def run(self) -> ChaosReport:
        with self._workload.engine.begin() as connection:
            connection.execute(text(WATCH))
        options, engine = self._options, self._workload.engine
        began = time.monotonic()
        self._workload.send(1, options.baseline_jobs)
        while self._workload.open() != 0 and not self._late():
            time.sleep(POLL_SECONDS)
        baseline_seconds = time.monotonic() - began
        self._report_progress(f"{options.baseline_jobs} jobs without faults: {baseline_seconds:.1f} s")
        faulted_seconds = self._drain_faulted()
        self._settle()
        answer_seconds = 0.0 if options.model else NULL_LATENCY
        overbilled = violations(engine, options.jobs, answer_seconds, (OVERBILLED,))
        divided = settle_sessions(engine)
        faulted_jobs = options.jobs - options.baseline_jobs
        drains = Drains(options.baseline_jobs, baseline_seconds, faulted_jobs, faulted_seconds)
        summary = read_summary(engine, options.jobs, self._faults.lost_messages, self._fenced.total, divided, drains)
        broken = (*overbilled, *violations(engine, options.jobs, answer_seconds))
        logs = self._rig.home / "logs" if broken else None
        return ChaosReport(options, summary, tuple(self._injected), broken, logs)

    def _drain_faulted(self) -> float:
        """Drain the rest of the jobs, and inject every fault of the plan; returns the seconds."""
        without = [FaultKind.CLOCK_SKEWED] if not self._rig.can_skew_clocks else []
        if self._options.engines == 1:
            without.append(FaultKind.MACHINE_LOST)
        plan = draw_plan(self._options.seed, self._options.faults, without)
        began = last = time.monotonic()
        self._workload.send_beside(self._options.baseline_jobs + 1)
        while (plan or not self._workload.drained()) and not self._late():
            self._faults.undo_due()
            if plan and self._is_due(plan[0], last):
                fault = self._faults.next_of(plan)
                plan.remove(fault)
                did = self._faults.inject(fault)
                last = time.monotonic()
                self._injected.append(Injected(round(last - began, 1), fault.kind, did))
                self._report_progress(f"{last - began:6.1f} s  {fault.kind}: {did}")
            self._fenced.scrape()
            time.sleep(POLL_SECONDS)
        return time.monotonic() - began

    def _is_due(self, fault: Fault, last: float) -> bool:
        baseline, waited = self._options.baseline_jobs, time.monotonic() - last
        ended = self._workload.ended()
        if ended is None:  # Postgres is unreachable: fewer faults are possible
            return waited > self._options.patience_seconds * UNREACHABLE_FACTOR
        share = (ended - baseline) / max(self._options.jobs - baseline, 1)
        return share >= fault.at or waited > self._options.patience_seconds

    def _settle(self) -> None:
        """Undo lasting faults, then wait for the engines' last counters.

        A heartbeat's counters were read before it was recorded, so this waits for two heartbeats of each engine.
        """
        self._faults.undo_all()
        end = time.monotonic() + SETTLE_SECONDS
        for _ in range(2):
            with self._workload.engine.connect() as connection:
                since = connection.execute(NOW).scalar_one()
                while not connection.execute(ALL_BEAT, {"since": since}).scalar_one() and time.monotonic() < end:
                    connection.rollback()  # keep no transaction open while waiting
                    time.sleep(POLL_SECONDS)
        self._fenced.scrape()

    def _late(self) -> bool:
        return time.monotonic() > self._gives_up_at
