"""Attention through sliding windows and with sinks, beside the same without, and over contexts as short as a window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle

import torch
import triton.testing
from torch import Tensor

from benchmarks.kernels import decode_attention as decode
from benchmarks.kernels import prefill_attention as prefill
from thothy_ai.kernels.paged import PLAIN, AttentionParams
from thothy_ai.kernels.triton.attention.decode_attention import DecodeAttention
from thothy_ai.kernels.triton.attention.prefill_attention import PrefillAttention

Row = tuple[str, ...]
HEADER: Row = ("shape", "step", "window", "us")
LONG = 100_000
WINDOWED = AttentionParams(window=4096)
NARROW = AttentionParams(window=128)
GPT_OSS = decode.Problem("gpt-oss-20b", 64, dim=64)


def measure() -> list[Row]:
    """Decode steps of 16 sequences and of many; chunks of a prompt."""
    return [*_decodes(), *_prefills()]


def _decodes() -> list[Row]:
    short, long = (decode.Load(f"16 x {tokens}", (tokens,) * 16) for tokens in (4096, LONG))
    many = decode.LOADS[5]
    grouped = decode.GROUPED[0]
    rows = [
        _decode(problem, *each)
        for problem in (decode.LLAMA, decode.LLAMA_FP8)
        for each in ((short, PLAIN), (long, PLAIN), (long, WINDOWED))
    ]
    loads = [(load, params) for load in (many, grouped) for params in (PLAIN, NARROW)]
    return rows + [_decode(GPT_OSS, load, params, sinks=sinks) for load, params in loads for sinks in (False, True)]


def _decode(problem: decode.Problem, load: decode.Load, params: AttentionParams, *, sinks: bool = False) -> Row:
    attention = DecodeAttention(problem.shape())
    load = load.split(attention.group_rows)
    batch, blocks = decode.build_batch(load, problem.block_size)
    q = torch.randn(batch.num_decode, problem.heads, problem.dim, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(q)
    caches = cycle(problem.caches(blocks))
    attention.plan(batch)
    scores = _sinks(problem.heads) if sinks else None
    step = f"{load.name}{', sinks' * sinks}"
    return problem.name, step, _named(params), _timed(lambda: attention(q, next(caches), batch, out, params, scores))


def _prefills() -> list[Row]:
    llama = prefill.Problem(32, 8, 128)
    chunk, alone = [(4096, 60_000)], [(4096, 4096)]
    problems = {"llama-8b": llama, "llama-8b, fp8 cache": replace(llama, fp8=True)}
    rows = [
        _prefill(name, problem, *each)
        for name, problem in problems.items()
        for each in ((alone, PLAIN), (chunk, PLAIN), (chunk, WINDOWED))
    ]
    oss = prefill.Problem(64, 8, 64)
    return rows + [
        _prefill("gpt-oss-20b", oss, [(2048, 2048)] * 4, params, sinks=sinks)
        for params in (PLAIN, NARROW)
        for sinks in (False, True)
    ]


def _prefill(
    name: str, problem: prefill.Problem, lengths: prefill.Lengths, params: AttentionParams, *, sinks: bool = False
) -> Row:
    batch = prefill._batch(lengths, problem.block_size)
    attention = PrefillAttention(problem.shape())
    attention.plan(batch)
    q = torch.randn(sum(batch.query_lens), problem.heads, problem.dim, device="cuda", dtype=torch.bfloat16)
    cache, out = problem.cache(int(batch.block_tables[0].max()) + 1), torch.empty_like(q)
    queries, context = lengths[0]
    step = f"{len(lengths)} x {queries} of {context}{', sinks' * sinks}"
    scores = _sinks(problem.heads) if sinks else None
    return name, step, _named(params), _timed(lambda: attention(q, cache, batch, out, params, scores))


def _sinks(heads: int) -> Tensor:
    return torch.randn(heads, device="cuda")


def _named(params: AttentionParams) -> str:
    return "-" if params.window is None else str(params.window)


def _timed(layer: Callable[[], None]) -> str:
    return f"{triton.testing.do_bench_cudagraph(layer, rep=20, return_mode='median') * 1e3:.1f}"
