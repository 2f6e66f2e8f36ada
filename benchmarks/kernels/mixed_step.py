"""What a mixed step of an engine costs its host, against its time on the device. Run as a module: shape names."""

from __future__ import annotations

import cProfile
import io
import pstats
import statistics
import sys
import time

import numpy as np
import torch

from thothy_ai.bench.models import bench_model
from thothy_ai.engine.options import EngineOptions
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.step import RowUpdates, Step

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


def main() -> None:
    for shape in sys.argv[1:] or ("qwen3-0.6b", "llama-8b"):
        options = EngineOptions("unix:///none", device="cuda", graphs=False, memory_utilization=0.5)
        loaded = bench_model(shape, options)
        core = build_core(loaded, options, lambda _: None)
        runner, config = core._runner, core._config
        for decodes, chunk in ((300, 980), (100, 980), (300, 200)):
            first, step = mixed(decodes, chunk, config.num_blocks, config.block_size)
            runner.sample(runner.forward(first), None)
            host, device = [], []
            for _ in range(12):
                torch.cuda.synchronize()
                begin = time.perf_counter()
                handle = runner.forward(step)
                runner.sample(handle, None)
                host.append(time.perf_counter() - begin)
                device.append(handle.read().seconds)
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(10):
                runner.sample(runner.forward(step), None)
            torch.cuda.synchronize()
            steady = (time.perf_counter() - begin) / 10
            print(
                f"{shape}, {decodes} rows and {chunk} tokens: host {statistics.median(host) * 1e3:.2f} ms, "
                f"device {statistics.median(device) * 1e3:.2f} ms, ten in a row {steady * 1e3:.2f} ms each",
                flush=True,
            )
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(3):
            runner.sample(runner.forward(step), None)
            torch.cuda.synchronize()
        profile.disable()
        text = io.StringIO()
        pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(16)
        print("\n".join(line for line in text.getvalue().splitlines() if line.strip())[:3500], flush=True)
        del core, runner, loaded
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
