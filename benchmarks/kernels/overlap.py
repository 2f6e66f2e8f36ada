"""Whether decode attention and GEMMs can share the GPU: decode bandwidth over the number of SMs, then both at once.

Run as a module. A program of decode attention that takes nearly all shared memory of an SM has it for itself, thus a
grid of N such programs runs on N SMs; green contexts say the same of the engine's own tuning. Then layers of a mixed
step are timed as they run today, and with the attention of the decode rows on N SMs beside the output projection and
the MLP of the prefill rows on the others (cuBLAS is told how many).
"""

from __future__ import annotations

import ctypes
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from benchmarks.kernels.bandwidth import copy_bandwidth
from benchmarks.kernels.decode_attention import LLAMA, LLAMA_FP8, Load, Problem, build_batch
from benchmarks.results import table
from thothy_ai.engine.models.layers.linear import Fp8Linear, Linear, linear, prepared
from thothy_ai.kernels.paged import AttentionBatch, FreshKV, LayerCache
from thothy_ai.kernels.rotary import rotary_table
from thothy_ai.kernels.triton.attention.decode_attention import DecodeAttention
from thothy_ai.kernels.triton.attention.decode_tuning import DecodeTuning
from thothy_ai.kernels.triton.attention.prefill_attention import PrefillAttention
from thothy_ai.kernels.triton.operations import TritonOperations

OPERATIONS = TritonOperations()
SM_COUNTS = (16, 24, 32, 40, 48, 56, 66, 80, 92, 104, 120, 132)
GREEN_COUNTS = (16, 24, 32, 40, 48, 56, 64, 80, 96, 104, 120)
HIDDEN, INNER, HEADS, KV_HEADS, DIM = 4096, 14336, 32, 8, 128
LAYERS, REPLAYS = 8, 12

Call = Callable[[], object]


def wide(programs: int, tile: int, ahead: int, warps: int) -> DecodeTuning:
    """One program for each SM."""
    return DecodeTuning(tile, ahead, warps, programs, group_rows=8)


WIDE = {"64 x 6 x 4": (64, 6, 4), "128 x 3 x 8": (128, 3, 8), "256 x 1 x 8": (256, 1, 8), "256 x 1 x 16": (256, 1, 16)}
SHARED = (16, 24, 32, 40, 48)  # SMs that attention gets beside GEMMs


def microseconds(call: Call, replays: int = REPLAYS, inner: int = 1) -> float:
    """Median of a captured call, which may be `inner` layers."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            call()
        finally:
            graph.capture_end()
        graph.replay()
        stream.synchronize()
        times = []
        for _ in range(replays):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times) / inner


def attention_call(problem: Problem, load: Load, tuning: DecodeTuning | None, repeats: int = 4) -> tuple[Call, float]:
    """Attention over caches that take turns, and the gigabytes of one."""
    attention = DecodeAttention(problem.shape(), tuning)
    batch, blocks = build_batch(load.split(attention.group_rows), problem.block_size)
    q = torch.randn(batch.num_decode, problem.heads, problem.dim, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(q)
    caches = problem.caches(blocks)[:2]
    attention.plan(batch)

    def call() -> None:
        for _, cache in zip(range(repeats), cycle(caches)):
            attention(q, cache, batch, out)

    return call, sum(load.own) * problem.token_bytes / 1e9


def uniform(rows: int, low: int, high: int) -> Load:
    draw = torch.Generator().manual_seed(rows)
    return Load(f"{rows} x {low}-{high}", tuple(torch.randint(low, high, (rows,), generator=draw).tolist()))


def over_sms() -> Iterator[tuple[str, ...]]:
    """GB/s of decode attention by the number of SMs, one program each."""
    load = uniform(300, 500, 2100)
    for problem in (LLAMA, LLAMA_FP8):
        for name, sizes in WIDE.items():
            figures = []
            for count in SM_COUNTS:
                try:
                    call, size = attention_call(problem, load, wide(count, *sizes))
                    figures.append(f"{size * 4e6 / microseconds(call):.0f}")
                except Exception as refusal:  # noqa: BLE001  shown
                    figures.append(type(refusal).__name__)
                    print("refused", problem.name, name, count, str(refusal)[:300], file=sys.stderr, flush=True)
                    break
            yield problem.name, name, *figures
        call, size = attention_call(problem, load, None)
        yield problem.name, "the engine's, whole GPU", f"{size * 4e6 / microseconds(call):.0f}"


def green_streams(count: int) -> tuple[torch.cuda.Stream, int, torch.cuda.Stream, int]:
    """A stream on so many SMs and how many it got, and a stream on the others and how many they are."""
    from cuda.bindings import driver as cu

    def checked(result: Any) -> Any:
        if int(result[0]):
            raise RuntimeError(str(result[0]))
        return result[1] if len(result) == 2 else result[1:]

    def stream(resource: Any, priority: int) -> torch.cuda.Stream:
        described = checked(cu.cuDevResourceGenerateDesc([resource], 1))
        context = checked(cu.cuGreenCtxCreate(described, device, cu.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM))
        made = cu.cuGreenCtxStreamCreate(context, int(cu.CUstream_flags.CU_STREAM_NON_BLOCKING), priority)
        return torch.cuda.ExternalStream(int(checked(made)))

    device = checked(cu.cuDeviceGet(torch.cuda.current_device()))
    resource = checked(cu.cuDeviceGetDevResource(device, cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
    groups, _, remaining = checked(cu.cuDevSmResourceSplitByCount(1, resource, 0, count))
    first = groups[0]
    return stream(first, -1), first.sm.smCount, stream(remaining, 0), remaining.sm.smCount


def over_green_contexts() -> Iterator[tuple[str, ...]]:
    """GB/s of the engine's own tuning, with as many programs as the SMs of a green context hold."""
    load = uniform(300, 500, 2100)
    for problem in (LLAMA, LLAMA_FP8):
        suited = DecodeTuning.suited(problem.shape())
        each = suited.programs // torch.cuda.get_device_properties(0).multi_processor_count
        for count in GREEN_COUNTS:
            stream, got, _, _ = green_streams(count)
            call, size = attention_call(problem, load, replace(suited, programs=each * got))
            with torch.cuda.stream(stream):
                call()
                stream.synchronize()
                times = []
                for _ in range(6):
                    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                    begin.record(stream)
                    for _ in range(4):
                        call()
                    end.record(stream)
                    end.synchronize()
                    times.append(begin.elapsed_time(end) * 1e3 / 4)
            yield problem.name, f"{got} SMs, {each} programs each", f"{size * 4e6 / statistics.median(times):.0f}"


class Blas:
    """How many SMs cuBLAS plans for."""

    def __init__(self) -> None:
        self._set = ctypes.CDLL(None).cublasSetSmCountTarget if _has_symbol() else _library().cublasSetSmCountTarget
        self._set.argtypes = [ctypes.c_void_p, ctypes.c_int]

    @contextmanager
    def leaving(self, count: int) -> Iterator[None]:
        total = torch.cuda.get_device_properties(0).multi_processor_count
        self._target(total - count if count else 0)
        torch._C._set_sm_carveout_experimental(count or None)
        yield
        self._target(0)
        torch._C._set_sm_carveout_experimental(None)

    def _target(self, count: int) -> None:
        if status := self._set(torch.cuda.current_blas_handle(), count):
            raise RuntimeError(f"cublasSetSmCountTarget: {status}")


def _has_symbol() -> bool:
    return hasattr(ctypes.CDLL(None), "cublasSetSmCountTarget")


def _library() -> ctypes.CDLL:
    """The cuBLAS that torch has loaded."""
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "libcublas.so" in line}
    return ctypes.CDLL(paths.pop())


class Layer:
    """A llama-8b layer over a mixed step of `decodes` rows and one chunk of `chunk` tokens."""

    def __init__(self, load: Load, chunk: int, context: int, *, fp8: bool) -> None:
        self.fp8, self.decodes, self.chunk = fp8, len(load.own), chunk
        self.total = self.decodes + chunk
        self.problem = LLAMA_FP8 if fp8 else LLAMA
        sizes = {
            "qkv": ((HEADS + 2 * KV_HEADS) * DIM, HIDDEN),
            "output": (HIDDEN, HEADS * DIM),
            "gate_up": (2 * INNER, HIDDEN),
            "down": (HIDDEN, INNER),
        }
        self.linear = {name: self._linear(*size) for name, size in sizes.items()}
        self.norm = torch.randn(HIDDEN, device="cuda", dtype=torch.bfloat16)
        self.rotary = rotary_table([1e4 ** (-2 * i / DIM) for i in range(DIM // 2)], 1.0, 8192, torch.device("cuda"))
        self.batch, blocks = build_batch(load, self.problem.block_size)
        self.prefill_batch, more = _one_chunk(chunk, context, self.problem.block_size, blocks)
        self.caches = cycle(self.problem.caches(blocks + more)[:2])
        self.positions = torch.randint(8192, (self.total,), device="cuda")
        self.slots = torch.randperm(blocks * 32, device="cuda")[: self.total]
        self.prefill = PrefillAttention(self.problem.shape())
        self.prefill.plan(self.prefill_batch)
        self.residual = torch.randn(self.total, HIDDEN, device="cuda", dtype=torch.bfloat16)
        self.update = torch.randn(self.total, HIDDEN, device="cuda", dtype=torch.bfloat16)
        self.side = torch.cuda.Stream(priority=-1)
        self.blas = Blas()

    def _linear(self, outputs: int, inputs: int) -> Linear:
        weight = torch.randn(outputs, inputs, device="cuda", dtype=torch.bfloat16) * 0.02
        if not self.fp8:
            return linear(weight)
        return Fp8Linear(OPERATIONS.quantize_fp8(weight), None, weight.dtype, OPERATIONS)

    def decoding(self, tuning: DecodeTuning | None) -> DecodeAttention:
        attention = DecodeAttention(self.problem.shape(), tuning)
        attention.plan(self.batch)
        return attention

    def before(self, cache: LayerCache) -> tuple[Tensor, Tensor, FreshKV | None]:
        """Norm, merged projection, rotation: all rows."""
        add_norm = OPERATIONS.add_rms_norm_fp8 if self.fp8 else OPERATIONS.add_rms_norm
        hidden = add_norm(self.update, self.residual, self.norm, 1e-5)
        qkv = self.linear["qkv"](hidden).view(self.total, -1, DIM)
        arguments = (qkv, None, 1e-5, self.rotary, self.positions, self.slots, cache, HEADS)
        q, fresh = OPERATIONS.rotate_and_cache(*arguments)
        if fresh is not None:
            fresh = FreshKV(*(part[self.decodes :] for part in fresh))
        return q, torch.empty_like(q), fresh

    def after(self, out: Tensor, rows: slice) -> None:
        """Output projection, norm, MLP of some rows."""
        add_norm = OPERATIONS.add_rms_norm_fp8 if self.fp8 else OPERATIONS.add_rms_norm
        silu = OPERATIONS.silu_mul_fp8 if self.fp8 else OPERATIONS.silu_mul
        projected = self.linear["output"](prepared(out[rows].flatten(1), self.linear["output"], OPERATIONS))
        hidden = add_norm(projected, self.residual[rows], self.norm, 1e-5)
        self.update[rows].copy_(self.linear["down"](silu(self.linear["gate_up"](hidden))))

    def serial(self, attention: DecodeAttention, *, split: bool) -> Call:
        def call() -> None:
            for _ in range(LAYERS):
                cache = next(self.caches)
                q, out, fresh = self.before(cache)
                attention(q, cache, self.batch, out)
                self.prefill(q[self.decodes :], cache, self.prefill_batch, out[self.decodes :], fresh=fresh)
                if split:
                    self.after(out, slice(self.decodes, None))
                    self.after(out, slice(0, self.decodes))
                else:
                    self.after(out, slice(None))

        return call

    def overlapped(
        self, attention: DecodeAttention, sms: int, side: torch.cuda.Stream, rest: torch.cuda.Stream | None = None
    ) -> Call:
        """`side` takes the attention of the decode rows; `rest` what runs beside it, or else the current stream."""

        def call() -> None:
            main = torch.cuda.current_stream()
            beside = rest or main
            for _ in range(LAYERS):
                cache = next(self.caches)
                q, out, fresh = self.before(cache)
                side.wait_stream(main)
                with torch.cuda.stream(side):
                    attention(q, cache, self.batch, out)
                if beside is not main:
                    beside.wait_stream(main)
                with torch.cuda.stream(beside), self.blas.leaving(sms):
                    self.prefill(q[self.decodes :], cache, self.prefill_batch, out[self.decodes :], fresh=fresh)
                    self.after(out, slice(self.decodes, None))
                if beside is not main:
                    main.wait_stream(beside)
                main.wait_stream(side)
                self.after(out, slice(0, self.decodes))

        return call


def _one_chunk(chunk: int, context: int, block_size: int, first_block: int) -> tuple[AttentionBatch, int]:
    width = -(-context // block_size)

    def index(values: Any) -> Tensor:
        return torch.as_tensor(values).to("cuda", torch.int32)

    return AttentionBatch(
        block_tables=index(torch.arange(first_block, first_block + width)[None]),
        rows=index([0]),
        context_lens=index([context]),
        query_starts=index([0, chunk]),
        shared_lens=index([0]),
        group_sizes=index([0]),
        num_decode=0,
        query_lens=(chunk,),
        kv_lens=(context,),
    ), width + 1


def eagerly(call: Call) -> float:
    """Median microseconds per layer of calls that are not captured."""
    call()
    times = []
    for _ in range(6):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / LAYERS)
    return statistics.median(times)


def attempt(measured: Callable[[], float]) -> str:
    try:
        return f"{measured():.0f}"
    except Exception as refusal:  # noqa: BLE001  shown
        print("refused", type(refusal).__name__, str(refusal)[:300], file=sys.stderr, flush=True)
        return "-"


def both(fp8: bool) -> Iterator[tuple[str, ...]]:
    """Microseconds per layer of mixed steps."""
    for decodes, chunk in ((300, 980), (300, 1748), (500, 780)):
        layer = Layer(uniform(decodes, 500, 2100), chunk, chunk + 256, fp8=fp8)
        own = layer.decoding(None)
        name = f"{'fp8' if fp8 else 'bf16'}, {decodes} rows and {chunk}"
        serial = [microseconds(layer.serial(own, split=split), inner=LAYERS) for split in (False, True)]
        yield name, "serial: today, split", *(f"{figure:.0f}" for figure in serial)
        yield name, "serial, eagerly", *(f"{eagerly(layer.serial(own, split=split)):.0f}" for split in (False, True))
        for wide_name in ("128 x 3 x 8", "256 x 1 x 8"):
            calls = [
                layer.overlapped(layer.decoding(wide(sms, *WIDE[wide_name])), sms, layer.side) for sms in SHARED
            ]
            yield name, wide_name, *(attempt(lambda call=call: microseconds(call, inner=LAYERS)) for call in calls)
        for label, confined in (("green", False), ("both green", True)):
            yield name, label, *(attempt(lambda sms=sms: _green(layer, sms, confined)) for sms in SHARED)  # noqa: B023


def _green(layer: Layer, sms: int, confined: bool) -> float:
    side, got, rest, left = green_streams(sms)
    suited = DecodeTuning.suited(layer.problem.shape())
    each = suited.programs // (got + left)
    attention = layer.decoding(replace(suited, programs=each * got))
    return eagerly(layer.overlapped(attention, got, side, rest if confined else None))


def main() -> None:
    print(f"{torch.cuda.get_device_name()}, copies at {copy_bandwidth():.0f} GB/s", flush=True)
    header = ("cache", "tile x ahead x warps", *map(str, SM_COUNTS))
    print("\nGB/s by SMs, one program each\n", table(header, list(over_sms())), sep="\n", flush=True)
    header = ("step", "form", *(f"on {sms}" for sms in SHARED))
    for fp8 in (False, True):
        print("\nus per layer", " | ".join(header), sep="\n", flush=True)
        for row in both(fp8):
            print(" | ".join(row), flush=True)
    try:
        print("\nGB/s in green contexts\n", table(("cache", "SMs", "GB/s"), list(over_green_contexts())), sep="\n")
    except Exception as refusal:  # noqa: BLE001  shown
        print("green contexts:", type(refusal).__name__, refusal)


if __name__ == "__main__":
    main()
