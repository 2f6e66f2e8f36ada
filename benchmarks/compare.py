"""Two checkouts of this repository compared in one run: the engine's drains on a GPU, or the queue on any machine.

    python -m benchmarks.compare drains ../before --row 0 --row 3 --rounds 2
    python -m benchmarks.compare queue ../before --rounds 3

Every measurement runs in a process of its own, alternately in this checkout and in the other one, so that what the
machine does meanwhile affects both. Figures are medians over the rounds; the ratio is this checkout's to the other's,
and its spread is that of the rounds' own ratios.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.command_line import CommandLine, positive
from benchmarks.gpu import ROWS
from benchmarks.results import table

HERE = Path(__file__).parents[1]
FP8_KV = ("templates", ("--shape", "llama-8b", "--kv-dtype", "fp8"))
DRAINS = (*((row.workload, row.arguments) for row in ROWS), FP8_KV)
NULL_ENGINE = "from benchmarks.queue_cpu import jobs_per_second; print(jobs_per_second())"
ENQUEUE = """
import time
from benchmarks.queue_cpu import _jobs, _stack
with _stack(None) as (_, producer, _):
    jobs = _jobs("enqueue", 20_000)
    begin = time.perf_counter()
    producer.enqueue_many(jobs)
    print(20_000 / (time.perf_counter() - begin))
"""

Measure = Callable[[Path], float]


def main() -> None:
    """Compare what the command line names, and print a table."""
    parser = CommandLine("compare", __doc__)
    parser.add_argument("what", choices=("drains", "queue"))
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--row", type=int, action="append", choices=range(len(DRAINS)), help="only this drain")
    parser.add_argument("--rounds", type=positive(int), default=1, help="measurements per checkout")
    options = parser.parse_args()
    other = options.other.resolve()
    if not (other / "thothy_ai" / "__init__.py").is_file():
        parser.error(f"{other} is not a checkout of this repository")
    rows: list[tuple[str, ...]] = []
    for name, measure in _measures(options.what, options.row or range(len(DRAINS))):
        rows.append(_compared(name, measure, other, options.rounds))
        print(*rows[-1], sep=" | ", flush=True)
    print("\n" + table(("what", "this checkout", "the other", "ratio", "ratios of the rounds"), rows))


def _measures(what: str, drains: Iterable[int]) -> list[tuple[str, Measure]]:
    if what == "drains":
        return [(f"{DRAINS[index][0]} {' '.join(DRAINS[index][1])}, seconds", _drain(index)) for index in drains]
    return [
        ("jobs/s through the queue, null engine", lambda checkout: _printed(checkout, NULL_ENGINE)),
        ("jobs/s enqueued by enqueue_many", lambda checkout: _printed(checkout, ENQUEUE)),
    ]


def _compared(name: str, measure: Measure, other: Path, rounds: int) -> tuple[str, ...]:
    figures: dict[Path, list[float]] = {HERE: [], other: []}
    for number in range(rounds):
        for checkout in (HERE, other) if number % 2 else (other, HERE):
            figures[checkout].append(measure(checkout))
    ours, theirs = statistics.median(figures[HERE]), statistics.median(figures[other])
    ratios = [mine / other_s for mine, other_s in zip(figures[HERE], figures[other], strict=True)]
    return name, f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.4f}", f"{min(ratios):.3f} to {max(ratios):.3f}"


def _drain(index: int) -> Measure:
    workload, arguments = DRAINS[index]

    def seconds(checkout: Path) -> float:
        moved = (checkout / "thothy_ai" / "bench").is_dir()  # out of the engine, since 0.1
        module = "thothy_ai.bench" if moved else "thothy_ai.engine.bench"
        command = ["-m", module, f"benchmarks/workloads/{workload}.json", *arguments, "--json"]
        report = json.loads(_run(checkout, command).splitlines()[-1])
        return float(dict(report["figures"])["seconds"])

    return seconds


def _printed(checkout: Path, code: str) -> float:
    return float(_run(checkout, ["-c", code]).splitlines()[-1])


def _run(checkout: Path, command: list[str]) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(checkout), os.environ.get("PYTHONPATH", "")))}
    done = subprocess.run(
        [sys.executable, *command], cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:  # it has said why
        raise SystemExit(done.returncode)
    return done.stdout


if __name__ == "__main__":
    main()
