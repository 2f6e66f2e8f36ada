"""What the service itself costs, and what it cost before: the same jobs through this tree and another one, in turn.

    git worktree add /tmp/before COMMIT
    python -m benchmarks.service_cpu --against /tmp/before [--rounds 3] [--jobs 3000]

Two drains per round and tree, each through a whole embedded stack with the null engine. "At once": the engine answers
immediately, so that the service is as fast as it can be. "Engine-bound": 128 requests at a time take six seconds, so
that the engine decides how long the drain takes, as a GPU does. Processor time says more than wall time: it varies
less, and is what the service takes from the engine's host. What Postgres and Valkey are asked to do does not vary.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.command_line import CommandLine, positive
from benchmarks.results import Table, record, table

RUN = Path(__file__).with_name("service_cpu_run.py")
HERE = Path(__file__).parents[1]
PARTS = ("worker", "judges", "dispatcher", "reaper", "engine", "registrar", "postgres", "valkey", "producer")
ALL = "all"
HEADLINES = (
    f"CPU s per 1,000 jobs: {ALL}",
    "CPU s per 1,000 jobs: worker",
    "Valkey commands per job",
    "jobs per second",
)
LIMIT_SECONDS = 900
ROWS, LATENCY = 128, 6.0  # 21 jobs per second, as llama-8b does templates on an H200


@dataclass(frozen=True, slots=True)
class Setting:
    """How fast the engine is: seconds per answer, and how many answers at a time."""

    name: str
    latency: float
    rows: int
    jobs_share: float  # of --jobs


SETTINGS = (Setting("at once", 0.0, 1_024, 1.0), Setting("engine-bound", LATENCY, ROWS, 0.5))


@dataclass(frozen=True, slots=True)
class Measured:
    """One drain. `cpu` holds seconds by part, `counts` what Postgres and Valkey did."""

    jobs: int
    seconds: float
    cpu: dict[str, float]
    counts: dict[str, float]

    def per_thousand(self, part: str) -> float:
        """Processor seconds per 1,000 jobs."""
        return (sum(self.cpu.values()) if part == ALL else self.cpu.get(part, 0.0)) / self.jobs * 1e3


def measure(tree: Path, setting: Setting, jobs: int) -> Measured:
    """One drain with the code of this tree. Raises `SystemExit` with its output if it fails."""
    command = [sys.executable, "-P", str(RUN), str(jobs), str(setting.latency), str(setting.rows)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("THOTHY_")}
    environment["PYTHONPATH"] = str(tree)
    done = subprocess.run(
        command, env=environment, cwd=tree, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    if done.returncode:
        raise SystemExit(f"{tree}: {done.stderr[-2_000:]}")
    found = json.loads(done.stdout)
    if found["succeeded"] != jobs:
        raise SystemExit(f"{tree}: {found['succeeded']} of {jobs} jobs succeeded")
    return Measured(jobs, found["seconds"], found["cpu"], found["counts"])


def rounds(trees: Sequence[Path], setting: Setting, jobs: int, count: int) -> list[list[Measured]]:
    """The drains of each tree, measured in turn: forwards in even rounds, backwards in odd ones."""
    found: list[list[Measured]] = [[] for _ in trees]
    for number in range(count):
        order = range(len(trees))
        for index in order if number % 2 == 0 else reversed(order):
            each = measure(trees[index], setting, jobs)
            found[index].append(each)
            total = each.per_thousand(ALL)
            line = f"{setting.name}, {('before', 'after')[index]}: {each.seconds:.2f} s, {total:.2f} CPU s per 1,000"
            parts = ", ".join(f"{part} {each.per_thousand(part):.2f}" for part in PARTS)
            print(f"{line}: {parts}", file=sys.stderr, flush=True)
    return found


def rows(before: Sequence[Measured], after: Sequence[Measured], name: str) -> list[tuple[str, ...]]:
    """A row per part and figure: medians of both trees, and their ratio."""
    figures: list[tuple[str, Callable[[Measured], float]]] = [
        *((f"CPU s per 1,000 jobs: {part}", partial(Measured.per_thousand, part=part)) for part in (*PARTS, ALL)),
        *((f"{count} per job", partial(_count, count)) for count in before[0].counts),
        ("jobs per second", lambda each: each.jobs / each.seconds),
    ]
    return [(name, figure, *_compared(before, after, value)) for figure, value in figures]


def _count(count: str, each: Measured) -> float:
    return each.counts[count] / each.jobs


def _compared(
    before: Sequence[Measured], after: Sequence[Measured], value: Callable[[Measured], float]
) -> tuple[str, str, str]:
    """Both medians and their ratio."""
    old, new = (statistics.median(map(value, runs)) for runs in (before, after))
    return f"{old:.3f}", f"{new:.3f}", f"{new / old:.3f}" if old else "new"


def main() -> None:
    """Measure, print and record."""
    line = CommandLine("service_cpu", __doc__)
    line.add_argument("--against", type=Path, required=True, help="a tree of an earlier commit")
    line.add_argument("--rounds", type=positive(int), default=3)
    line.add_argument("--jobs", type=positive(int), default=3_000)
    chosen = line.parse_args()
    if not (chosen.against / "thothy_ai").is_dir():
        line.error(f"{chosen.against}: no tree of this project")
    found: list[tuple[str, ...]] = []
    for setting in SETTINGS:
        jobs = round(chosen.jobs * setting.jobs_share)
        before, after = rounds((chosen.against.absolute(), HERE), setting, jobs, chosen.rounds)
        found += rows(before, after, f"{setting.name}, {jobs:,} jobs")
    header = ("engine", "figure (median)", "before", "after", "ratio")
    print(table(header, found))
    figures = [(f"{engine}: {figure}", after) for engine, figure, _, after, _ in found if figure in HEADLINES]
    tables = [Table("against the other tree", header, found)]
    record(
        "CPU time of the service", "Service", "python -m benchmarks.service_cpu --against TREE", figures, tables=tables
    )


if __name__ == "__main__":
    main()
