"""Attention through torch's FlexAttention beside Triton's kernels, over the same steps and caches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle

import torch
import triton.testing

from benchmarks.kernels.decode_attention import GROUPED, LLAMA, LOADS, QWEN, Load, Problem, build_batch
from thothy_ai.kernels.flex import FlexAttention
from thothy_ai.kernels.paged import Attention, AttentionBatch, AttentionParams
from thothy_ai.kernels.triton.attention import PagedAttention

Row = tuple[str, ...]
HEADER: Row = ("shape", "step", "Triton, us", "FlexAttention, us", "ratio")
PROMPTS = (Load("a prompt of 2000", (2000,)), Load("8 prompts of 500", (500,) * 8))
BLOOM = Problem("bloom-7b, ALiBi", 32, kv_heads=32)
SLOPES = AttentionParams(slopes=tuple(2.0 ** (-(head + 1) / 4) for head in range(32)))


def measure() -> list[Row]:
    """Decode steps and prompts; Triton's kernels have no ALiBi, and are timed without."""
    decoding = [*LOADS[:7], *GROUPED]  # the others' caches are larger than any that an engine gives FlexAttention
    rows = [_timed(problem, load, build_batch) for problem in (LLAMA, QWEN) for load in decoding]
    rows += [_timed(BLOOM, load, build_batch, SLOPES) for load in LOADS[:4]]  # which has four times as many KV heads
    return [*rows, *(_timed(LLAMA, load, _prompts) for load in PROMPTS)]


def _timed(
    problem: Problem,
    load: Load,
    build: Callable[[Load, int], tuple[AttentionBatch, int]],
    params: AttentionParams | None = None,
) -> Row:
    shape = problem.shape()
    ours, flex = PagedAttention(shape), FlexAttention(shape)
    batch, blocks = build(load.split(ours.group_rows), problem.block_size)
    q = torch.randn(sum(batch.query_lens), problem.heads, problem.dim, device="cuda", dtype=torch.bfloat16)
    out, stored = torch.empty_like(q), problem.caches(blocks)

    def microseconds(attention: Attention, params: AttentionParams) -> float:
        caches = cycle(stored)
        attention.plan(batch)
        measured: float = triton.testing.do_bench_cudagraph(
            lambda: attention(q, next(caches), params, out), rep=20, return_mode="median"
        )
        return measured * 1e3

    triton_us, flex_us = microseconds(ours, AttentionParams()), microseconds(flex, params or AttentionParams())
    row = problem.name, load.name, f"{triton_us:.1f}", f"{flex_us:.1f}", f"{flex_us / triton_us:.2f}"
    print(*row, sep=" | ", flush=True)  # each kind of layer takes torch some time to compile
    return row


def _prompts(load: Load, block_size: int) -> tuple[AttentionBatch, int]:
    """All tokens of each sequence."""
    batch, blocks = build_batch(load, block_size)
    starts = torch.tensor((0, *load.own), dtype=torch.int32, device="cuda").cumsum(0, dtype=torch.int32)
    return replace(batch, query_starts=starts, num_decode=0, query_lens=load.own), blocks
