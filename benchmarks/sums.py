"""Sums over two GPUs with the norm that follows: through the GPUs' own memory, and by NCCL.

    python -m benchmarks.sums            on two GPUs of one kind

A graph of twenty sums, each with its norm, is replayed; times are of one sum and its norm, on the first GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import Tensor
from torch._C._distributed_c10d import TCPStore

from benchmarks.command_line import CommandLine
from benchmarks.results import table
from thothy_ai.engine.distributed.process_group import ProcessGroup, open_store, reach_store
from thothy_ai.kernels.triton import norm, rank_sums

RANKS = 2
SIZES = (2048, 4096, 8192)  # numbers of a row
ROWS = (1, 16, 64, 128, 256, 512)
IN_A_GRAPH, REPLAYS = 20, 50
EPS = 1e-5


def main() -> None:
    line = CommandLine("sums", __doc__)
    line.parse_on_a_gpu()
    if torch.cuda.device_count() < RANKS:
        line.error("this needs two GPUs")
    store = open_store(RANKS)
    other = processes.get_context("spawn").Process(target=of_other_rank, args=(store.port,))
    other.start()
    found = measured(0, store)
    other.join()
    print(table(("numbers of a row", "rows", "ours, us", "NCCL, us", "results"), found), flush=True)
    os._exit(0)  # to leave the group would wait for graphs


def of_other_rank(port: int) -> None:
    measured(1, reach_store(port, RANKS))
    os._exit(0)


def measured(rank: int, store: TCPStore) -> list[tuple[str, ...]]:
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    group = ProcessGroup(rank, RANKS, device, store)
    if group._peers is None:
        raise SystemExit("the GPUs' memory cannot be connected")
    peers, rows = group._peers._peers, []
    for size in SIZES:
        weight = torch.ones(size, device=device, dtype=torch.bfloat16)
        for count in ROWS:
            torch.manual_seed(rank)
            x = torch.randn(count, size, device=device, dtype=torch.bfloat16)
            summed = torch.zeros_like(x)

            def ours(x: Tensor = x, summed: Tensor = summed, weight: Tensor = weight) -> Tensor:
                return rank_sums.add_rms_norm(x, summed, weight, EPS, peers)

            def by_nccl(x: Tensor = x, summed: Tensor = summed, weight: Tensor = weight) -> Tensor:
                total = x.clone()
                dist.all_reduce(total)
                return norm.add_rms_norm(total, summed, weight, EPS)

            normalized = ours()
            summed.zero_()
            same = "the same bits" if torch.equal(normalized, by_nccl()) else "other bits"
            times = [f"{microseconds(sums, group):.1f}" for sums in (ours, by_nccl)]
            rows.append((f"{size:,}", str(count), *times, same))
    return rows


def microseconds(sums: Callable[[], Tensor], group: ProcessGroup) -> float:
    """Of one sum, with graphs that both ranks replay at once."""
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
