"""Decode attention: time and bandwidth of typical steps. Run as a module, it tries other tunings and layouts, too."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle

import torch
import triton.testing
from torch import Tensor

from benchmarks.kernels.bandwidth import copy_bandwidth
from thothy_ai.kernels.paged import AttentionBatch, AttentionShape, LayerCache
from thothy_ai.kernels.triton.attention.decode_attention import DecodeAttention
from thothy_ai.kernels.triton.attention.decode_plan import DecodePlan
from thothy_ai.kernels.triton.attention.decode_tuning import DecodeTuning

Row = tuple[str, ...]
HEADER: Row = ("shape", "step", "us", "GB/s")
LARGER_THAN_L2 = 256 << 20
FP8 = torch.float8_e4m3fn


@dataclass(frozen=True)
class Load:
    """Sequences of a step, in groups of `size` that share `shared` tokens; each has its own tokens besides."""

    name: str
    own: tuple[int, ...]
    shared: int = 0
    size: int = 1

    def split(self, most: int) -> Load:
        """In groups of at most `most`."""
        return replace(self, size=min(self.size, most)) if self.shared else self

    def ungrouped(self) -> Load:
        """The same contexts, nothing shared."""
        return Load(f"{self.name}, ungrouped", tuple(self.shared + own for own in self.own))


def _uniform(rows: int, low: int, high: int) -> tuple[int, ...]:
    draw = random.Random(rows)
    return tuple(draw.randint(low, high) for _ in range(rows))


LOADS = [
    Load("1 x 4000", (4000,)),
    Load("8 x 4000", (4000,) * 8),
    Load("64 x 1000", (1000,) * 64),
    Load("256 x 500", (500,) * 256),
    Load("256 x 500-4000", _uniform(256, 500, 4000)),
    Load("512 x 500-2000", _uniform(512, 500, 2000)),
    Load("768 x 500", (500,) * 768),
    Load("768 x 500-4000", _uniform(768, 500, 4000)),
]
GROUPED = [
    Load("68 x 5 share 1700, own 200", _uniform(340, 100, 300), shared=1696, size=5),
    Load("4 x 160 share 240, own 900", _uniform(640, 300, 1500), shared=240, size=160),
]
SHORT = [LOADS[3], LOADS[5], LOADS[7], GROUPED[0]]


@dataclass(frozen=True)
class Problem:
    """Sizes of a layer's attention, and how its cache lies in memory."""

    name: str
    heads: int
    kv_heads: int = 8
    dim: int = 128
    block_size: int = 32
    heads_first: bool = False
    cache_dtype: torch.dtype = torch.bfloat16
    latent: int = 0  # numbers of a key that are its value

    def shape(self) -> AttentionShape:
        device = torch.device("cuda")
        sizes = (1024, self.heads, self.kv_heads, self.dim, self.block_size, 8192)
        return AttentionShape(*sizes, torch.bfloat16, self.cache_dtype, device, latent=self.latent)

    def caches(self, blocks: int) -> list[LayerCache]:
        """Enough of them that the L2 holds none when it is used again."""
        return [self._cache(blocks) for _ in range(2 + LARGER_THAN_L2 // (blocks * self.block_size * self.token_bytes))]

    @property
    def token_bytes(self) -> int:
        scale = 4 if self.cache_dtype == FP8 else 0
        return (1 if self.latent else 2) * self.kv_heads * (self.dim * self.cache_dtype.itemsize + scale)

    def _cache(self, blocks: int) -> LayerCache:
        inner = (self.kv_heads, self.block_size) if self.heads_first else (self.block_size, self.kv_heads)

        def part(*sizes: int) -> Tensor:
            made = torch.empty(blocks, *inner, *sizes, device="cuda", dtype=torch.bfloat16).normal_()
            return made.transpose(1, 2) if self.heads_first else made

        if self.latent:
            keys = part(self.dim)
            return LayerCache(keys, keys[..., : self.latent])
        keys, values = (part(self.dim).to(self.cache_dtype) for _ in range(2))
        if self.cache_dtype != FP8:
            return LayerCache(keys, values)
        return LayerCache(keys, values, *(part().float().abs() for _ in range(2)))


LLAMA = Problem("llama-8b", 32)
QWEN = Problem("qwen3-0.6b", 16)
LLAMA_FP8 = replace(LLAMA, name="llama-8b, fp8 cache", cache_dtype=FP8)
LAYOUTS = [
    replace(LLAMA, name=f"pages of {size}{', heads first' * first}", block_size=size, heads_first=first)
    for size in (16, 32, 64)
    for first in (False, True)
]
OTHERS = [
    replace(QWEN, name="qwen3-0.6b, fp8 cache", cache_dtype=FP8),
    Problem("no GQA, heads of 64", 8, dim=64),
    Problem("GQA 16, heads of 256", 32, kv_heads=2, dim=256),
    Problem("glm-4.7-flash, latents", 20, kv_heads=1, dim=576, latent=512),
    Problem("deepseek-v2-lite, latents", 16, kv_heads=1, dim=576, latent=512),
]


def measure() -> list[Row]:
    """The tuning that the engine uses, over all shapes and steps."""
    loads = [*LOADS, *GROUPED, *(load.ungrouped() for load in GROUPED)]
    rows = [timed(problem, load) for problem in (LLAMA, QWEN, LLAMA_FP8) for load in loads]
    rows += [timed(problem, load) for problem in (*LAYOUTS, *OTHERS) for load in SHORT]
    return [*rows, *(timed_plan(load) for load in (LOADS[-1], GROUPED[0]))]


def tunings(sms: int) -> list[DecodeTuning]:
    """What to try; the number of programs also says how many are hoped to run on an SM at once."""
    base = DecodeTuning(tile=64, ahead=2, warps=4, programs=2 * sms, group_rows=8)
    narrow = replace(base, tile=32, programs=3 * sms)
    return [
        base,
        *(replace(base, programs=count * sms) for count in (4, 6, 8, 16)),
        replace(base, programs=3 * sms, group_rows=4),
        *(replace(base, group_rows=rows) for rows in (1, 2, 16)),
        replace(base, ahead=1, programs=3 * sms),
        replace(base, ahead=3),
        *(replace(base, warps=warps) for warps in (2, 8)),
        *(replace(base, warps=2, programs=count * sms) for count in (4, 6)),
        narrow,
        *(replace(narrow, ahead=ahead) for ahead in (3, 4)),
        replace(narrow, programs=9 * sms),
        *(replace(narrow, programs=count * sms, registers=128) for count in (4, 8)),
        replace(narrow, ahead=3, programs=4 * sms, registers=128, group_rows=4),
        replace(base, ahead=1, programs=4 * sms, registers=128),
        replace(base, tile=128, ahead=1),
        replace(base, tile=128, ahead=2, warps=8, programs=sms),
    ]


def sweep() -> Iterator[Row]:
    """Every tuning over a few steps."""
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    for problem in (LLAMA, QWEN, LLAMA_FP8):
        for tuning in tunings(sms):
            for load in SHORT:
                yield (*timed(problem, load, tuning), str(tuning).removeprefix("DecodeTuning"))


def timed(problem: Problem, load: Load, tuning: DecodeTuning | None = None) -> Row:
    """(shape, step, microseconds, GB/s) of attention and merge, or the reason why it does not run."""
    try:
        attention = DecodeAttention(problem.shape(), tuning)
        load = load.split(attention.group_rows)
        batch, blocks = build_batch(load, problem.block_size)
        milliseconds = triton.testing.do_bench_cudagraph(
            _layers(problem, attention, batch, blocks), rep=20, return_mode="median"
        )
    except triton.OutOfResources as refusal:
        return problem.name, load.name, str(refusal), "-"
    read = (sum(load.own) + load.shared * int((batch.group_sizes > 0).sum())) * problem.token_bytes
    moved = read + 2 * 2 * len(load.own) * problem.heads * problem.dim  # queries and results in bfloat16
    return problem.name, load.name, f"{milliseconds * 1e3:.1f}", f"{moved / milliseconds / 1e6:.0f}"


def timed_plan(load: Load) -> Row:
    """The same of the planner, whose bandwidth means nothing."""
    shape = LLAMA.shape()
    tuning = DecodeTuning.suited(shape)
    slots, rows = tuning.programs // shape.num_kv_heads, tuning.group_rows
    plan = DecodePlan.allocate(shape.max_rows, slots, tuning.tile, shape.device, group_rows=rows)
    batch, _ = build_batch(load.split(rows), LLAMA.block_size)
    milliseconds = triton.testing.do_bench_cudagraph(lambda: plan.fill(batch), return_mode="median")
    return "plan", load.name, f"{milliseconds * 1e3:.1f}", "-"


def _layers(problem: Problem, attention: DecodeAttention, batch: AttentionBatch, blocks: int) -> Callable[[], None]:
    q = torch.randn(batch.num_decode, problem.heads, problem.dim, device="cuda", dtype=torch.bfloat16)
    out = q.new_empty(*q.shape[:2], problem.shape().value_dim)
    caches = cycle(problem.caches(blocks))
    attention.plan(batch)
    return lambda: attention(q, next(caches), batch, out)


def build_batch(load: Load, block_size: int) -> tuple[AttentionBatch, int]:
    """One token of each sequence, over shuffled blocks; and how many blocks there are."""
    rows, shared_blocks = len(load.own), load.shared // block_size
    shared = shared_blocks * block_size
    contexts = torch.tensor(load.own) + load.shared
    firsts = torch.arange(rows) // load.size * load.size
    width = -(-int(contexts.max()) // block_size)
    tables = 1 + torch.randperm(rows * width).view(rows, width)
    tables[:, :shared_blocks] = tables[firsts, :shared_blocks]
    sizes = torch.where(firsts == torch.arange(rows), (rows - firsts).clamp(max=load.size), 0)

    def index(values: Tensor) -> Tensor:
        return values.to("cuda", torch.int32)

    return AttentionBatch(
        block_tables=(index(tables),),
        rows=index(torch.arange(rows)),
        context_lens=index(contexts),
        query_starts=index(torch.arange(rows + 1)),
        shared_lens=index(torch.full((rows,), shared)),
        group_sizes=index(sizes),
        num_decode=rows,
        query_lens=(1,) * rows,
        kv_lens=tuple(contexts.tolist()),
    ), rows * width + 1


if __name__ == "__main__":
    copy = copy_bandwidth()
    for row in sweep():
        portion = "-" if row[3] == "-" else f"{float(row[3]) / copy:.0%}"
        print(*row[:4], portion, row[4], sep="\t", flush=True)
