"""Prefill attention: time and TFLOP/s of plain steps and of steps of the workloads that production resembles.

Run as a module, it tries other tilings, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, takewhile
from pathlib import Path

import torch
import triton.testing
from torch import Tensor

from thothy_ai.bench.workload import PromptPart, read_workload
from thothy_ai.kernels.paged import AttentionBatch, AttentionShape, LayerCache
from thothy_ai.kernels.triton.attention.prefill_attention import PrefillAttention, Tiling

TILINGS = [
    Tiling(rows=128, keys=32, warps=4, stages=3),  # two programs per SM
    Tiling(rows=128, keys=64, warps=8, stages=3),
    Tiling(rows=128, keys=128, warps=8, stages=2),
    Tiling(rows=64, keys=32, warps=4, stages=3),
    Tiling(rows=64, keys=64, warps=4, stages=3),
    Tiling(rows=256, keys=32, warps=8, stages=3),
    *(Tiling(rows=rows, keys=keys, warps=8, stages=2) for rows in (32, 64) for keys in (32, 64)),  # of latents
]
LAYERS = 3  # caches that take turns, so that the L2 holds none of them
BLOCK_SIZE = 32
SAMPLE = 5  # milliseconds; the median of ten counts
WORKLOADS = Path(__file__).parents[1] / "workloads"

Lengths = Sequence[tuple[int, int]]  # of a step's sequences: queries, context
Row = tuple[str, ...]
HEADER: Row = ("shape", "step", "us", "TFLOP/s")


def measure() -> list[Row]:
    """The tiling that the engine uses, over all shapes and steps."""
    return [
        (f"{name}{', fp8 cache' * fp8}", step, *timed(lengths, replace(problem, fp8=fp8)))
        for name, problem in PROBLEMS.items()
        for fp8 in ((False,) if problem.latent else (False, True))
        for step, lengths in steps().items()
    ]


def sweep(cases: Iterable[Lengths]) -> Iterator[Row]:
    """Every tiling; for one shape also over larger pages, and over an fp8 cache."""
    cases, llama = list(cases), PROBLEMS["llama-8b"]
    for problem in (*PROBLEMS.values(), replace(llama, block_size=64), replace(llama, fp8=True)):
        for tiling in TILINGS:
            figures = (timed(lengths, problem, tiling) for lengths in cases)
            yield str(problem), str(tiling), *(" ".join(row) for row in figures)


def steps() -> dict[str, Lengths]:
    """By name: steps of equal sequences, and of the workloads' prompts as they follow one another."""
    templates, siblings = prompts("templates"), prompts("siblings")
    return {
        "1 x 8192": [(8192, 8192)],
        "4 x 2048": [(2048, 2048)] * 4,
        "16 x 1200": [(1200, 1200)] * 16,
        "40 x 200": [(200, 200)] * 40,
        "40 x 200 after 1500": [(200, 1700)] * 40,
        "templates": filled(templates[50:], 8192),
        "980 after 256": [(980, 1236)],
        "980 after 1500": [(980, 2480)],
        "20 x 48 after 1700": [(48, 1748)] * 20,
        "templates, 3000 tokens": filled(templates[200:], 3000),
        "siblings": filled(siblings[100:], 8192),
        "siblings, long sources cached": filled([prompt for prompt in siblings if prompt[1] > 1000], 8192),
    }


def prompts(workload: str) -> Lengths:
    """(tokens, those of the whole pages that an earlier prompt began with as well) of each prompt, as listed."""
    seen: set[PromptPart] = set()
    lengths = []
    for job in read_workload(WORKLOADS / f"{workload}.json").jobs:
        cached = sum(part.tokens for part in takewhile(seen.__contains__, job.parts))
        lengths.append((job.prompt_tokens, cached // BLOCK_SIZE * BLOCK_SIZE))
        seen.update(job.shared)
    return lengths


def filled(waiting: Lengths, budget: int) -> Lengths:
    """One step that takes `budget` tokens of prompts, in their order; of the last perhaps only its beginning."""
    chunks = []
    for tokens, cached in waiting:
        fresh = min(tokens - cached, budget)
        chunks.append((fresh, cached + fresh))
        budget -= fresh
        if not budget:
            break
    return chunks


@dataclass(frozen=True)
class Problem:
    """Sizes of a layer's attention in bfloat16. `latent`: numbers of a key that are its value."""

    heads: int
    kv_heads: int
    dim: int
    block_size: int = BLOCK_SIZE
    fp8: bool = False
    latent: int = 0

    def shape(self) -> AttentionShape:
        return AttentionShape(
            max_rows=1024,
            num_heads=self.heads,
            num_kv_heads=self.kv_heads,
            head_dim=self.dim,
            block_size=self.block_size,
            max_context=8192,
            dtype=torch.bfloat16,
            kv_dtype=torch.float8_e4m3fn if self.fp8 else torch.bfloat16,
            device=torch.device("cuda"),
            latent=self.latent,
        )

    def cache(self, blocks: int) -> LayerCache:
        slots = (blocks, self.block_size, self.kv_heads)
        keys = torch.randn(*slots, self.dim, device="cuda", dtype=torch.bfloat16)
        values = keys[..., : self.latent] if self.latent else torch.randn_like(keys)
        if not self.fp8:
            return LayerCache(keys, values)
        scales = torch.ones(slots, device="cuda")
        return LayerCache(keys.to(torch.float8_e4m3fn), values.to(torch.float8_e4m3fn), scales, scales)

    def flops(self, lengths: Lengths) -> int:
        """Two matmuls of every query with the keys that it sees."""
        seen = sum(queries * (2 * context - queries + 1) // 2 for queries, context in lengths)
        return 2 * self.heads * (self.dim + self.shape().value_dim) * seen


PROBLEMS = {
    "llama-8b": Problem(32, 8, 128),
    "qwen3-0.6b": Problem(16, 8, 128),
    "glm-4.7-flash, latents": Problem(20, 1, 576, latent=512),
    "deepseek-v2-lite, latents": Problem(16, 1, 576, latent=512),
}  # query heads, KV heads, numbers of a key


def timed(lengths: Lengths, problem: Problem, tiling: Tiling | None = None) -> Row:
    """(microseconds, TFLOP/s), or the reason why it does not run."""
    try:
        layer = _layer(lengths, problem, tiling)
        milliseconds = triton.testing.do_bench_cudagraph(layer, rep=SAMPLE, return_mode="median")
    except triton.OutOfResources as refusal:
        return str(refusal), "-"
    return f"{milliseconds * 1e3:.1f}", f"{problem.flops(lengths) / milliseconds / 1e9:.0f}"


def _layer(lengths: Lengths, problem: Problem, tiling: Tiling | None) -> Callable[[], Tensor]:
    batch = _batch(lengths, problem.block_size)
    tokens, blocks = sum(batch.query_lens), int(batch.block_tables[0].max()) + 1
    attention = PrefillAttention(problem.shape(), tiling)
    attention.plan(batch)
    q = torch.randn(tokens, problem.heads, problem.dim, device="cuda", dtype=torch.bfloat16)
    out = q.new_empty(tokens, problem.heads, problem.shape().value_dim)
    caches = cycle([problem.cache(blocks) for _ in range(LAYERS)])

    def layer() -> Tensor:
        attention(q, next(caches), batch, out)
        return out

    return layer


def _batch(lengths: Lengths, block_size: int) -> AttentionBatch:
    """Prefills only, over shuffled blocks."""
    width = max(-(-context // block_size) for _, context in lengths)
    tables = 1 + torch.randperm(width * len(lengths)).view(len(lengths), width)
    none = torch.zeros(len(lengths), dtype=torch.int32, device="cuda")
    queries, contexts = zip(*lengths, strict=True)

    def index(values: Sequence[int] | Tensor) -> Tensor:
        return torch.as_tensor(values).to("cuda", torch.int32)

    return AttentionBatch(
        block_tables=(index(tables),),
        rows=index(range(len(lengths))),
        context_lens=index(contexts),
        query_starts=index(torch.tensor([0, *queries]).cumsum(0)),
        shared_lens=none,
        group_sizes=none,
        num_decode=0,
        query_lens=queries,
        kv_lens=contexts,
    )


if __name__ == "__main__":
    cases = steps()
    print("problem", "tiling", *(f"{step}: us TFLOP/s" for step in cases), sep="\t")
    for row in sweep(cases.values()):
        print(*row, sep="\t", flush=True)
