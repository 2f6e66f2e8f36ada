"""`make bench-gpu`: the engine's drains against vLLM's on an H200; prints each report and records it.

Each row runs in a separate process, with its own start-up and memory. Arguments other than --row and --tokenizer are
passed on to each drain:

    python -m benchmarks.gpu --row 0 --row 3 --profile --draw 7

With a tokenizer (`python -m benchmarks.tekken WHEEL FOLDER`), the rows of real jobs run too: with and without schemas,
and through the whole service.

    python -m benchmarks.gpu --row 4 --row 6 --tokenizer FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.results import Table, record, table

ROOT = Path(__file__).parents[1]
PEER = "vLLM 0.26.0 on an H200"
AREAS = {"Drain": "Drains", "Drain of jobs": "Schemas", "Service": "Service"}  # by the start of a report's title
HEADLINES = (
    "seconds",
    "times the seconds without schemas",
    "service over the bare engine around it",
    "from result to commit: median, p99",
)


@dataclass(frozen=True)
class Row:
    """One drain of a workload file, and vLLM's time for it."""

    workload: str
    arguments: tuple[str, ...]
    peer_seconds: float

    def command(self, more: list[str]) -> list[str]:
        workload = f"benchmarks/workloads/{self.workload}.json"
        return ["-m", "thothy_ai.bench", workload, *self.arguments, *self._peer(more), *more]

    def _peer(self, more: list[str]) -> list[str]:
        """vLLM's figure holds for the files' own lengths and all their jobs only."""
        if {"--draw", "--jobs"} & {argument.partition("=")[0] for argument in more}:
            return []
        return ["--peer-seconds", str(self.peer_seconds), "--peer-name", PEER]


@dataclass(frozen=True)
class JobsRow:
    """Real jobs in a shape with a tokenizer's vocabulary: `drain --kinds`, or `service`. Neither has a profile."""

    arguments: tuple[str, ...]

    def command(self, more: list[str]) -> list[str]:
        return ["-m", "thothy_ai.cli", "bench", *self.arguments, *(each for each in more if each != "--profile")]


ROWS = (
    Row("templates", ("--shape", "llama-8b"), 48.1),
    Row("templates", ("--shape", "llama-8b", "--weights", "fp8"), 39.3),
    Row("siblings", ("--shape", "llama-8b", "--order", "source", "--kv-tokens", "200000"), 44.6),
    Row("templates", ("--shape", "qwen3-0.6b"), 17.2),
)
JOBS_ROWS = (
    JobsRow(("drain", "--kinds", "--shape", "llama-8b")),
    JobsRow(("drain", "--kinds", "--shape", "qwen3-0.6b")),
    JobsRow(("service", "--shape", "llama-8b")),
    JobsRow(("service", "--shape", "qwen3-0.6b")),
)


def main() -> None:
    """Run the chosen rows; exit code 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rows: list[Row | JobsRow] = [*ROWS, *JOBS_ROWS]
    parser.add_argument("--row", type=int, action="append", choices=range(len(rows)), help="run this row; repeatable")
    parser.add_argument("--tokenizer", metavar="FOLDER", help="tokenizer of the rows of real jobs; without it, not run")
    chosen, more = parser.parse_known_args()
    if chosen.tokenizer is None and any(index >= len(ROWS) for index in chosen.row or ()):
        parser.error("a row of real jobs needs --tokenizer FOLDER")
    wanted = chosen.row or range(len(ROWS) if chosen.tokenizer is None else len(rows))
    vocabulary = [] if chosen.tokenizer is None else ["--tokenizer", chosen.tokenizer]
    succeeded = [_run(rows[index].command(more + (vocabulary if index >= len(ROWS) else []))) for index in wanted]
    if not all(succeeded):
        raise SystemExit(1)


def _run(command: list[str]) -> bool:
    shown = f"python {shlex.join(command)}"
    print(f"\n{shown}", flush=True)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    done = subprocess.run(
        [sys.executable, *command, "--json"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        print(f"failed with exit code {done.returncode}", flush=True)
        return False
    _record(json.loads(done.stdout.splitlines()[-1]), shown)
    return True


def _record(report: dict[str, Any], command: str) -> None:
    title, figures = report["title"], dict(report["figures"])
    peer = next((f"{name.partition(',')[0]}: {value}" for name, value in figures.items() if name.startswith(PEER)), "")
    tables = [Table("all figures", ("figure", "value"), list(figures.items()))]
    if report["kernels"]:
        rows = [
            (f"`{kernel['name']}`", kernel["kind"], f"{kernel['launches']:,}", f"{kernel['seconds']:.3f}")
            for kernel in report["kernels"]
        ]
        tables.append(Table("kernels", ("kernel", "counts as", "launches", "seconds"), rows))
    headlines = [(name, figures[name], peer if name == "seconds" else "") for name in HEADLINES if name in figures]
    record(title, AREAS[title.partition(":")[0]], command, headlines, tables=tables, device=report["where"])
    print(title, report["where"], *(table(each.header, each.rows) for each in tables), sep="\n\n", flush=True)


if __name__ == "__main__":
    main()
