"""What a token costs in a layer's matmuls, by tokens per step, for llama-8b in bf16 and fp8. Needs a GPU.

    python -m benchmarks.gemm_rows

It tells which token budgets suit cuBLAS, and is where the simulation's times come from (`benchmarks/device_model.py`).
"""

from __future__ import annotations

from statistics import median

import torch

from benchmarks.command_line import CommandLine

ROWS = (256, 384, 512, 640, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792, 2048, 2560, 3072, 4096, 6144, 8192)
SHAPES = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
REPEATS = 12


def layer_microseconds(rows: int, *, fp8: bool) -> float:
    """Of the four matmuls of a layer, on weights that the cache does not hold."""
    kind = torch.float8_e4m3fn if fp8 else torch.bfloat16
    weights = [torch.randn(shape, device="cuda").to(kind) for shape in SHAPES]
    inputs = {width: torch.randn(rows, width, device="cuda").to(kind) for width in (4096, 14336)}
    scales = torch.ones(rows, 1, device="cuda"), [torch.ones(1, n, device="cuda") for n, _ in SHAPES]

    def layer() -> None:
        for weight, scale in zip(weights, scales[1], strict=True):
            rows_in = inputs[weight.shape[1]]
            if fp8:
                torch._scaled_mm(rows_in, weight.T, scale_a=scales[0], scale_b=scale, out_dtype=torch.bfloat16)
            else:
                torch.matmul(rows_in, weight.T)

    times = []
    for _ in range(REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(4):
            layer()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 4 * 1e3)
    return median(times[2:])


def main() -> None:
    """Print a line per number of rows."""
    CommandLine("gemm_rows", __doc__).parse_on_a_gpu()
    print("rows  bf16 us  ns/row  fp8 us  ns/row")
    for rows in ROWS:
        plain, fp8 = layer_microseconds(rows, fp8=False), layer_microseconds(rows, fp8=True)
        print(f"{rows:5} {plain:8.0f} {plain / rows * 1e3:7.1f} {fp8:7.0f} {fp8 / rows * 1e3:7.1f}", flush=True)


if __name__ == "__main__":
    main()
