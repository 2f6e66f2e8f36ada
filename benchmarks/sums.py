"""Sums over two GPUs with the norm that follows: through the GPUs' own memory, and by NCCL.

    python -m benchmarks.sums            on two GPUs of one kind

A graph of twenty sums, each with its norm, is replayed; times are of one sum and its norm, on the first GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import Tensor
from torch._C._distributed_c10d import TCPStore

from benchmarks.command_line import CommandLine
from benchmarks.phases import BenchmarkError
from benchmarks.results import table
from thothy_ai.engine.distributed.process_group import ProcessGroup, open_store, reach_store
from thothy_ai.kernels.triton import norm

RANKS = 2
SIZES = (2048, 4096, 8192, 16384)  # numbers of a row
ROWS = (1, 16, 64, 128, 256, 512)
IN_A_GRAPH, REPLAYS = 20, 50
EPS = 1e-5


def main() -> None:
    line = CommandLine("sums", __doc__)
    line.parse_on_a_gpu()
    if torch.cuda.device_count() < RANKS:
        line.error("this needs two GPUs")
    store = open_store(RANKS)
    processes.get_context("spawn").Process(target=other_rank, args=(store.port,), daemon=True).start()
    with line.checked():
        found = [*measured(0, store)]
    print(table(("numbers of a row", "rows", "ours, us", "NCCL, us", "bits"), found), flush=True)
    os._exit(0)  # to leave the group would wait for graphs


def other_rank(port: int) -> None:
    for _ in measured(1, reach_store(port, RANKS)):
        pass
    os._exit(0)


def measured(rank: int, store: TCPStore) -> Iterator[tuple[str, ...]]:
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    group = ProcessGroup(rank, RANKS, device, store)
    if group._peers is None:
        raise BenchmarkError("the GPUs' memory cannot be connected")
    for size in SIZES:
        weight = torch.ones(size, device=device, dtype=torch.bfloat16)
        for rows in ROWS:
            torch.manual_seed(rank)
            x = torch.randn(rows, size, device=device, dtype=torch.bfloat16)
            ours, nccl = partial(group._peers.add_rms_norm, weight=weight, eps=EPS), partial(by_nccl, weight=weight)
            same = torch.equal(ours(x, torch.zeros_like(x)), nccl(x.clone(), torch.zeros_like(x)))
            zeros = torch.zeros_like(x), torch.zeros_like(x)  # remain zeros, however often they are summed
            times = (f"{microseconds(partial(sums, *zeros), group):.1f}" for sums in (ours, nccl))
            yield f"{size:,}", str(rows), *times, "the same" if same else "different"


def by_nccl(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    dist.all_reduce(x)
    return norm.add_rms_norm(x, residual, weight, EPS)


def microseconds(sums: Callable[[], Tensor], group: ProcessGroup) -> float:
    """Of one sum, from graphs. Both ranks replay equally many; `triton.testing` chooses a number by each one's time."""
    graph = torch.cuda.CUDAGraph()
    sums()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(IN_A_GRAPH):
            sums()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    torch.cuda.synchronize()
    group.least(0)
    begin.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    end.synchronize()
    return 1e3 * begin.elapsed_time(end) / (IN_A_GRAPH * REPLAYS)


if __name__ == "__main__":
    main()
