"""Milliseconds of a mixed step: of the host, of the device, and of each of several in a row; with and without graphs.

    python -m benchmarks.kernels.mixed_step

Needs a GPU.
"""

from __future__ import annotations

import cProfile
import gc
import io
import pstats
import statistics
import time
from itertools import product

import numpy as np
import torch

from benchmarks.command_line import CommandLine
from thothy_ai.bench.models import bench_model
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.api.step import RowUpdates, Step
from thothy_ai.engine.execution.runner import Runner
from thothy_ai.engine.process.build import build_core

CONTEXT, CHUNK_BEFORE = 1300, 256


def mixed(decodes: int, chunk: int, blocks: int, page: int) -> tuple[Step, Step]:
    """A step that brings every row its blocks, and the same step without them."""
    width = -(-(CONTEXT + 1) // page)
    rows = np.arange(decodes + 1, dtype=np.int32)
    starts = np.full(decodes + 1, CONTEXT, np.int32)
    starts[-1] = CHUNK_BEFORE
    counts = np.ones(decodes + 1, np.int32)
    counts[-1] = chunk
    samples = np.ones(decodes + 1, np.bool_)
    values = 1 + np.random.default_rng(0).permutation(blocks - 1)[: width * (decodes + 1)].astype(np.int32)
    updates = RowUpdates(rows, np.zeros_like(rows), np.full_like(rows, width), values)
    step = Step(rows, starts, counts, samples)
    return Step(rows, starts, counts, samples, new_blocks=updates), step


CASES = {
    "llama-8b": {},
    "llama-8b, fp8 weights and cache": {"weights": "fp8", "kv_dtype": "fp8"},
    "qwen3-0.6b": {},
}
BUDGET = 1280
STEPS = ((100, 60), (100, BUDGET - 100), (300, 60), (300, BUDGET - 300))  # rows that decode, and tokens of a prompt


def main() -> None:
    parser = CommandLine("kernels.mixed_step", __doc__)
    parser.add_argument("--profile", action="store_true", help="also print where the host's time goes")
    given = parser.parse_on_a_gpu()
    for (name, formats), graphs in product(CASES.items(), (False, True)):
        options = EngineOptions(
            "unix:///none", device="cuda", token_budget=BUDGET, graphs=graphs, memory_utilization=0.6, **formats
        )
        loaded = bench_model(name.split(",")[0], options)
        core = build_core(loaded, options, lambda _: None)
        runner, config = core._runner, core._config
        for decodes, chunk in STEPS:
            first, step = mixed(decodes, chunk, config.num_blocks, config.block_size)
            runner.sample(runner.forward(first), None)
            figures = " ".join(f"{figure * 1e3:.2f}" for figure in timed(runner, step))
            print(f"{name}, {decodes} rows and {chunk} tokens, graphs {graphs}: {figures}", flush=True)
        if given.profile:
            print(profiled(runner, step), flush=True)
        del core, runner, loaded
        gc.collect()
        torch.cuda.empty_cache()


def timed(runner: Runner, step: Step, steps: int = 12) -> tuple[float, float, float]:
    """Seconds: of the host for one step, of the device, and of both for each of several in a row."""
    host, device = [], []
    for _ in range(steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        handle = runner.forward(step)
        runner.sample(handle, None)
        host.append(time.perf_counter() - begin)
        device.append(handle.read().seconds)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        runner.sample(runner.forward(step), None)
    torch.cuda.synchronize()
    return statistics.median(host), statistics.median(device), (time.perf_counter() - begin) / steps


def profiled(runner: Runner, step: Step) -> str:
    """Where the host's time goes."""
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(3):
        runner.sample(runner.forward(step), None)
        torch.cuda.synchronize()
    profile.disable()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(16)
    return text.getvalue()


if __name__ == "__main__":
    main()
