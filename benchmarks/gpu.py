"""`make bench-gpu`: the engine's drains against vLLM's on an H200; prints each report and writes it to RESULTS.md.

Each row runs in a separate process, with its own start-up and memory. Arguments other than --row are passed on to each
drain:

    python -m benchmarks.gpu --row 0 --row 3 --profile --draw 7
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

from benchmarks.results import table, write_section

ROOT = Path(__file__).parents[1]
PEER = "vLLM 0.26.0 on an H200"


@dataclass(frozen=True)
class Row:
    """One drain, and vLLM's time for it."""

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


ROWS = (
    Row("templates", ("--shape", "llama-8b"), 48.1),
    Row("templates", ("--shape", "llama-8b", "--weights", "fp8"), 39.3),
    Row("siblings", ("--shape", "llama-8b", "--order", "source", "--kv-tokens", "200000"), 44.6),
    Row("templates", ("--shape", "qwen3-0.6b"), 17.2),
)


def main() -> None:
    """Run the chosen rows; exit code 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", type=int, action="append", choices=range(len(ROWS)), help="run this row; repeatable")
    chosen, more = parser.parse_known_args()
    wanted = range(len(ROWS)) if chosen.row is None else chosen.row
    succeeded = [_run(ROWS[index].command(more)) for index in wanted]
    if not all(succeeded):
        raise SystemExit(1)


def _run(command: list[str]) -> bool:
    shown = f"python {shlex.join(command)}"
    print(f"\n{shown}", flush=True)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *command, "--json"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        print(f"failed with exit code {done.returncode}", flush=True)
        return False
    _keep(json.loads(done.stdout.splitlines()[-1]), shown)
    return True


def _keep(report: dict[str, Any], command: str) -> None:
    body = table(("figure", "value"), [tuple(figure) for figure in report["figures"]])
    if report["kernels"]:
        rows = [
            (f"`{kernel['name']}`", kernel["kind"], f"{kernel['launches']:,}", f"{kernel['seconds']:.3f}")
            for kernel in report["kernels"]
        ]
        body += "\n\n" + table(("kernel", "counts as", "launches", "seconds"), rows)
    write_section(report["title"], command, body, where=report["where"])
    print(f"{report['title']}\n{report['where']}\n\n{body}", flush=True)


if __name__ == "__main__":
    main()
