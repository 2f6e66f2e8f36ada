"""`make bench-cpu`: engine and queue on this machine's CPU; prints and records each table."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import transformers

from benchmarks import engine_cpu, queue_cpu
from benchmarks.results import Row, record, table
from thothy_ai.engine.checkpoint.bundled import bundled_model_path
from thothy_ai.engine.weights.gguf.convert import converted_folder
from thothy_ai.engine.weights.loader import default_cache_dir

COMMAND = "make bench-cpu"


def main() -> None:
    """Run all comparisons and keep their tables."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    folder = converted_folder(bundled_model_path(), torch.float32, default_cache_dir())
    for measure in (lambda: _static_batching(folder), _queue, queue_cpu.alone):
        title, area, rows = measure()
        record(title, area, COMMAND, rows)
        print(f"\n{title}\n\n{table(('measurement', 'result', 'target'), rows)}")


def _static_batching(folder: Path) -> tuple[str, str, list[Row]]:
    """Against `generate` of transformers in static batches: output tokens per second of both, and their ratio."""
    targets = ("1.2", "", "2")
    rows = [
        (jobs, f"{ratio} ({ours} and {theirs} tokens/s)", target)
        for (jobs, _, ours, theirs, ratio), target in zip(
            (comparison.row() for comparison in engine_cpu.run(folder)), targets, strict=True
        )
    ]
    return (
        f"Engine against transformers {transformers.__version__.split('.')[0]} in static batches, CPU",
        "Engine",
        rows,
    )


def _queue() -> tuple[str, str, list[Row]]:
    cost = queue_cpu.overhead()
    rows = [
        (f"{queue_cpu.JOBS} jobs submitted to the engine directly", f"{cost.direct_seconds:.1f} s", ""),
        ("the same through producer, Postgres, Valkey, Celery, pool", f"{cost.queue_seconds:.1f} s", ""),
        ("overhead of the queue (median of rounds)", f"{cost.share:+.1%}", "under 5 %"),
    ]
    return "Queue, CPU", "Queue", rows


if __name__ == "__main__":
    main()
