"""`make bench-cpu`: engine and queue on this machine's CPU; prints its table and writes it to RESULTS.md."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import transformers

from benchmarks import engine_cpu, queue_cpu
from benchmarks.results import table, write_section
from thothy_ai.engine.checkpoint.bundled import bundled_model_path
from thothy_ai.engine.weights.convert import converted_folder
from thothy_ai.engine.weights.loader import default_cache_dir

COMMAND = "make bench-cpu"


def main() -> None:
    """Run all comparisons and keep their tables."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    folder = converted_folder(bundled_model_path(), torch.float32, default_cache_dir())
    for measure in (lambda: _static_batching(folder), _queue, queue_cpu.alone):
        title, body = measure()
        write_section(title, COMMAND, body)
        print(f"\n{title}\n\n{body}")


def _static_batching(folder: Path) -> tuple[str, str]:
    rows = [comparison.row() for comparison in engine_cpu.run(folder)]
    header = ("jobs", "rounds", "engine, output tokens/s", "transformers, output tokens/s", "ratio")
    note = (
        f"SmolLM2-135M-Instruct in fp32, 2 threads; transformers {transformers.__version__} `generate` in static "
        f"batches of {engine_cpu.STATIC_BATCH}, torch {torch.__version__}. "
        "The 16 prompts have 128 tokens; the engine computes equal ones once, by its prefix cache. "
        "Wanted: 1.2 x for 16 equal prompts, 2 x for mixed outputs."
    )
    return "Engine against static batching, CPU", f"{note}\n\n{table(header, rows)}"


def _queue() -> tuple[str, str]:
    cost = queue_cpu.overhead()
    rows = [
        (f"{queue_cpu.JOBS} jobs submitted to the engine directly", f"{cost.direct_seconds:.1f} s", ""),
        ("the same through producer, Postgres, Valkey, Celery, pool", f"{cost.queue_seconds:.1f} s", ""),
        ("overhead of the queue (median of rounds)", f"{cost.share:+.1%}", "under 5 %"),
    ]
    return "Queue, CPU", table(("what", "measured", "wanted"), rows)


if __name__ == "__main__":
    main()
