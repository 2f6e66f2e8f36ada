"""How far cuBLAS is from the larger of two bounds, the weight's bytes and the operations, at few rows.

Run as a module. For each matmul of a llama-8b layer: torch's own choice, and the fastest of what cuBLASLt's heuristics
offer, called through ctypes.
"""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable
from itertools import cycle

import torch
from torch import Tensor

from benchmarks.kernels.bandwidth import copy_bandwidth
from benchmarks.kernels.layers import LLAMA
from benchmarks.results import table

ROWS = (16, 32, 64, 96, 128, 160, 192, 256, 320, 384, 448, 512, 768, 1024, 1280)
OFFERS = 40
COPIES = 3
_R16BF, _R32F, _COMPUTE_32F = 14, 0, 68
WORKSPACE = 32 << 20


class Result(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algo", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


def library() -> ctypes.CDLL:
    """The cuBLASLt that torch has loaded."""
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "libcublasLt.so" in line}
    return ctypes.CDLL(paths.pop())


class Lt:
    """x [T, in] times weight [N, in] by a chosen algorithm."""

    def __init__(self) -> None:
        self.lib = library()
        self.handle = ctypes.c_void_p()
        self._check(self.lib.cublasLtCreate(ctypes.byref(self.handle)))
        self.space = torch.empty(WORKSPACE, dtype=torch.uint8, device="cuda")

    @staticmethod
    def _check(status: int) -> None:
        if status:
            raise RuntimeError(f"cuBLASLt: {status}")

    def _layout(self, rows: int, columns: int) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        arguments = (_R16BF, ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows))
        self._check(self.lib.cublasLtMatrixLayoutCreate(ctypes.byref(made), *arguments))
        return made

    def offers(self, tokens: int, outputs: int, inputs: int) -> list[Callable[[Tensor, Tensor, Tensor], None]]:
        """Column-major: out [N, T] = weight [in, N] transposed times x [in, T]."""
        described, preference = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self.lib.cublasLtMatmulDescCreate(ctypes.byref(described), _COMPUTE_32F, _R32F))
        transposed = ctypes.c_int32(1)
        self._check(self.lib.cublasLtMatmulDescSetAttribute(described, 3, ctypes.byref(transposed), ctypes.c_size_t(4)))
        self._check(self.lib.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)))
        most = ctypes.c_uint64(WORKSPACE)
        self._check(
            self.lib.cublasLtMatmulPreferenceSetAttribute(preference, 1, ctypes.byref(most), ctypes.c_size_t(8))
        )
        a, b, c = self._layout(inputs, outputs), self._layout(inputs, tokens), self._layout(outputs, tokens)
        results, count = (Result * OFFERS)(), ctypes.c_int()
        self._check(
            self.lib.cublasLtMatmulAlgoGetHeuristic(
                self.handle, described, a, b, c, c, preference, OFFERS, results, ctypes.byref(count)
            )
        )
        one, zero = ctypes.c_float(1), ctypes.c_float(0)

        def form(result: Result) -> Callable[[Tensor, Tensor, Tensor], None]:
            def call(x: Tensor, weight: Tensor, out: Tensor) -> None:
                pointers = [ctypes.c_void_p(each.data_ptr()) for each in (weight, x, out)]
                self._check(
                    self.lib.cublasLtMatmul(
                        self.handle, described, ctypes.byref(one), pointers[0], a, pointers[1], b, ctypes.byref(zero),
                        pointers[2], c, pointers[2], c, ctypes.byref(result.algo),
                        ctypes.c_void_p(self.space.data_ptr()), ctypes.c_size_t(WORKSPACE),
                        ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
                    )
                )  # fmt: skip

            return call

        return [form(results[i]) for i in range(count.value) if results[i].state == 0]


def microseconds(calls: list[Callable[[], object]], replays: int = 5) -> float:
    """Of one call, in a graph of several over weights that take turns."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        for _, call in zip(range(8), cycle(calls)):
            call()
        graph.capture_end()
        graph.replay()
        times = []
        for _ in range(replays):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / 8)
    return statistics.median(times)


def main() -> None:
    copy = copy_bandwidth()
    big = torch.randn(16384, 4096, dtype=torch.bfloat16, device="cuda")
    square = torch.randn(14336, 4096, dtype=torch.bfloat16, device="cuda")
    rate = 2 * 16384 * 4096 * 14336 / microseconds([lambda: torch.nn.functional.linear(big, square)]) / 1e6
    print(
        f"{torch.cuda.get_device_name()}, copies at {copy:.0f} GB/s, a large product at {rate:.0f} TFLOP/s", flush=True
    )
    lt = Lt()
    rows: list[tuple[str, ...]] = []
    sums = {tokens: [0.0, 0.0, 0.0] for tokens in ROWS}
    for name, (outputs, inputs) in {**LLAMA.matmuls, "head": (128256, 4096)}.items():
        weights = [torch.randn(outputs, inputs, dtype=torch.bfloat16, device="cuda") for _ in range(COPIES)]
        for tokens in ROWS:
            x = torch.randn(tokens, inputs, dtype=torch.bfloat16, device="cuda")
            out = torch.empty(tokens, outputs, dtype=torch.bfloat16, device="cuda")
            usual = microseconds([lambda w=w: torch.nn.functional.linear(x, w) for w in weights])
            expected = torch.nn.functional.linear(x, weights[0])
            best, place, found = float("inf"), -1, lt.offers(tokens, outputs, inputs)
            for index, form in enumerate(found):
                try:
                    form(x, weights[0], out)
                    torch.cuda.synchronize()
                    error = float((out.float() - expected.float()).norm() / expected.float().norm())
                    if not error < 1e-2:
                        print("wrong", name, tokens, index, error, flush=True)
                        continue
                    spent = microseconds([lambda w=w, form=form: form(x, w, out) for w in weights], replays=2)
                except RuntimeError as refusal:
                    print("refused", name, tokens, index, refusal, flush=True)
                    continue
                if spent < best:
                    best, place = spent, index
            if place >= 0:
                best = microseconds([lambda w=w: found[place](x, w, out) for w in weights])
            bound = max(2 * outputs * inputs / copy / 1e3, 2 * tokens * outputs * inputs / rate / 1e6)
            if name != "head":
                for at, figure in enumerate((bound, usual, best)):
                    sums[tokens][at] += figure
            figures = (f"{bound:.1f}", f"{usual:.1f}", f"{bound / usual:.0%}", f"{best:.1f}", f"{bound / best:.0%}")
            rows.append((name, str(tokens), *figures, f"{place} of {len(found)}"))
    header = ("matmul", "rows", "bound, us", "torch", "of bound", "best offer", "of bound", "which")
    print(table(header, rows))
    layers = [(str(t), *(f"{s:.1f}" for s in sums[t]), f"{sums[t][0] / sums[t][1]:.0%}") for t in ROWS]
    print(table(("rows", "layer: bound, us", "torch", "best offers", "torch of bound"), layers), flush=True)


if __name__ == "__main__":
    main()
