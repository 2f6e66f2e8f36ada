"""Drains workloads of varying lengths through one engine for some minutes; its memory must not grow. Needs a GPU.

python -m benchmarks.soak --minutes 10
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from itertools import count
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.command_line import CommandLine, positive
from benchmarks.results import record, table
from thothy_ai.bench.drain import BenchCore, as_requests
from thothy_ai.bench.draws import redraw
from thothy_ai.bench.models import bench_model
from thothy_ai.bench.shapes import SHAPES
from thothy_ai.bench.workload import TokenDraw, read_workload
from thothy_ai.engine.api.options import EngineOptions

WORKLOADS = [Path(__file__).with_name("workloads") / f"{name}.json" for name in ("templates", "siblings")]
JOBS = 400  # of each drain
SETTLED = 2  # drains, one of each workload, after which memory must not grow
SLACK = 16 << 20  # bytes; torch allocates memory for small tensors 2 MiB at a time


class Memory(NamedTuple):
    """Bytes that torch holds of the device, and how often it had to free what it held to get more."""

    reserved: int
    retries: int

    @classmethod
    def now(cls) -> Memory:
        stats = torch.cuda.memory_stats()
        return cls(stats["reserved_bytes.all.current"], stats["num_alloc_retries"])


def main() -> None:
    parser = CommandLine("soak", __doc__)
    parser.add_argument("--minutes", type=positive(float), default=10.0)
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-0.6b")
    parser.add_argument("--memory-utilization", type=positive(float, 1.0), default=0.9)
    arguments = parser.parse_args()
    options = EngineOptions(url="", device="cuda", memory_utilization=arguments.memory_utilization)
    with parser.checked():
        loaded = bench_model(arguments.shape, options)
        drain = BenchCore(loaded, options)
    workloads = [read_workload(path) for path in WORKLOADS]
    seen: list[Memory] = []
    jobs, begin = 0, time.monotonic()
    for number in count():
        work = redraw(workloads[number % len(workloads)], seed=number).jobs[:JOBS]
        drain.run(as_requests(work, TokenDraw(loaded.config.vocab_size, f"soak {number}"), str(number)))
        seen.append(Memory.now())
        jobs += len(work)
        if time.monotonic() - begin > 60 * arguments.minutes and number >= SETTLED:
            break
    drain.close()
    _report(arguments, seen, jobs, time.monotonic() - begin)


def _report(arguments: argparse.Namespace, seen: list[Memory], jobs: int, seconds: float) -> None:
    settled, last = seen[SETTLED - 1], seen[-1]
    rows = [
        ("seconds", f"{seconds:.0f}"),
        ("drains, jobs", f"{len(seen)}, {jobs:,}"),
        (
            "memory held, first two drains and last",
            f"{settled.reserved / 2**20:,.0f}, {last.reserved / 2**20:,.0f} MiB",
        ),
        ("allocations that had to free something", f"{last.retries}"),
    ]
    where = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    record(
        f"Soak: {arguments.shape}",
        "Drains",
        f"python -m benchmarks.soak {shlex.join(sys.argv[1:])}",
        rows,
        device=where,
    )
    print(table(("figure", "value"), rows))
    if last.reserved > settled.reserved + SLACK or last.retries:
        raise SystemExit("memory grew")


if __name__ == "__main__":
    main()
