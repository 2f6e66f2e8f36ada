"""Tries variants of the kernels for integer weights with groups, once, to choose from."""

from __future__ import annotations

import multiprocessing
import time
from functools import partial

import torch

from benchmarks.kernels.grouped_dequantize_variants import dequantize
from benchmarks.kernels.grouped_skinny_variants import multiply
from benchmarks.kernels.layers import LLAMA, copies, timed
from thothy_ai.kernels.reference import grouped as reference

SHAPES = dict(LLAMA.matmuls)
SMS = 132


def weight_of(n, k, group=128, zeros=False, bits=4):
    numbers = torch.randint(0, 1 << bits, (n, k), dtype=torch.uint8, device="cuda")
    g = -(-k // min(group, k))
    scales = (torch.rand(g, n, device="cuda") * 0.02).half()
    z = torch.randint(0, 1 << bits, (g, n), dtype=torch.uint8, device="cuda") if zeros else None
    return reference.packed(numbers, scales, z, bits, group)


def fill(n, out_tile, per_sm):
    return max(1, round(SMS * per_sm / -(-n // out_tile)))


def configs(n):
    found = []
    for out_tile, warps, stages, per_sm in (
        (64, 4, 4, 1),
        (64, 4, 8, 1),
        (64, 4, 4, 2),
        (64, 4, 6, 2),
        (64, 4, 3, 4),
        (64, 4, 4, 3),
        (128, 8, 4, 1),
        (128, 4, 4, 1),
        (128, 4, 4, 2),
        (64, 2, 4, 4),
        (32, 2, 4, 4),
    ):
        found.append(
            dict(
                outputs_tile=out_tile, warps=warps, stages=stages, split=fill(n, out_tile, per_sm), unpack=2, scaling=0
            )
        )
    base = found[2]
    found += [base | dict(unpack=3), base | dict(unpack=0), base | dict(scaling=1)]
    return found


def run(weight, x, out, done, tokens, config):
    multiply(x, weight, None, out, tokens=tokens, done=done, **config)


JOBS = [(name, index, 16, 128, False) for name in SHAPES for index in range(14)]
JOBS += [
    (name, index, tokens, group, zeros)
    for name in ("qkv", "gate_up")
    for index in (2, 5)
    for tokens, group, zeros in ((16, 128, True), (16, 32, False), (16, 32, True), (64, 128, False), (128, 128, False))
]
JOBS += [("qkv", 6, tokens, 128, False) for tokens in (64, 128)] + [
    ("gate_up", 6, tokens, 128, False) for tokens in (64, 128)
]


def compile_some(jobs):
    for name, index, tokens, group, zeros in jobs:
        n, k = SHAPES[name]
        weight = weight_of(n, k, group, zeros)
        x = torch.randn(tokens, k, device="cuda", dtype=torch.bfloat16)
        try:
            run(
                weight,
                x,
                x.new_empty(tokens, n),
                torch.zeros(n, dtype=torch.int32, device="cuda"),
                tokens,
                configs(n)[index],
            )
            torch.cuda.synchronize()
        except Exception as error:
            print("failed", name, index, str(error)[:200], flush=True)


def main():
    began = time.time()
    torch.manual_seed(0)
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=compile_some, args=(JOBS[i::15],)) for i in range(15)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"compiled in {time.time() - began:.0f} s", flush=True)
    weights, plains, best = {}, {}, {}
    for name, index, tokens, group, zeros in JOBS:
        n, k = SHAPES[name]
        key = (name, group, zeros)
        if key not in weights:
            weights[key] = [weight_of(n, k, group, zeros) for _ in range(copies(n * k // 2))]
        x = torch.randn(tokens, k, device="cuda", dtype=torch.bfloat16)
        if (name, tokens) not in plains:
            dense = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(copies(2 * n * k))]
            plains[name, tokens] = timed([partial(torch.nn.functional.linear, x, w) for w in dense])
            del dense
        config = configs(n)[index]
        done = torch.zeros(n, dtype=torch.int32, device="cuda")
        out = x.new_empty(tokens, n)
        try:
            run(weights[key][0], x, out, done, tokens, config)
            want = x.float() @ reference.dequantized(weights[key][0]).T
            error = float((out - want).norm() / want.norm())
            took = timed([partial(run, w, x, out, done, tokens, config) for w in weights[key]])
        except Exception as failure:
            print("failed", name, config, str(failure)[:100])
            continue
        bits = " ".join(f"{a}={b}" for a, b in config.items())
        print(
            f"{name:8} T={tokens:3} g={group:3} z={zeros:d} {bits}: {took * 1e3:6.1f} us  x{plains[name, tokens] / took:.2f} err {error:.1e}",
            flush=True,
        )
    print(f"skinny done at {time.time() - began:.0f} s", flush=True)
    many(weights)
    print(f"many done at {time.time() - began:.0f} s", flush=True)
    eights()
    print(f"all done at {time.time() - began:.0f} s", flush=True)


def many(weights):
    for name in ("qkv", "gate_up", "down"):
        n, k = SHAPES[name]
        some = weights[name, 128, False]
        for rows_tile, warps in ((16, 4), (32, 4), (64, 4), (32, 8)):
            outs = [torch.empty(n, k, dtype=torch.bfloat16, device="cuda") for _ in range(copies(2 * n * k))]
            took = timed([partial(dequantize, w, o, 0, rows_tile, warps) for w, o in zip(some, outs)])
            print(
                f"dequantize {name} rows {rows_tile} warps {warps}: {took * 1e3:.1f} us {2.5 * n * k / took / 1e6:.0f} GB/s",
                flush=True,
            )
        dense = outs
        for tokens in (128, 256, 512, 1024, 2048, 4096):
            x = torch.randn(tokens, k, device="cuda", dtype=torch.bfloat16)
            plain = timed([partial(torch.nn.functional.linear, x, w) for w in dense])
            for chunk in (32, 64, 1024):
                took = timed([partial(chunked, w, x, chunk << 20) for w in some])
                print(
                    f"many {name} T={tokens} chunk {chunk} MiB: {took * 1e3:.0f} us, bf16 {plain * 1e3:.0f}, x{plain / took:.2f}",
                    flush=True,
                )


def chunked(weight, x, most):
    n, k = weight.outputs, weight.inputs
    out = x.new_empty(len(x), n)
    pieces = -(-2 * n * k // most)
    size = -(-n // pieces // 128) * 128
    scratch = x.new_empty(min(size, n), k)
    for begin in range(0, n, size):
        rows = min(size, n - begin)
        dequantize(weight, scratch[:rows], begin)
        torch.mm(x, scratch[:rows].t(), out=out[:, begin : begin + rows])
    return out


def eights():
    for name in ("qkv", "gate_up"):
        n, k = SHAPES[name]
        w8 = [torch.randint(-127, 128, (n, k), dtype=torch.int8, device="cuda") for _ in range(copies(n * k))]
        w16 = [w.bfloat16() for w in w8]
        f8 = [(w / 100).to(torch.float8_e4m3fn) for w in w16]
        row = torch.ones(1, n, device="cuda")
        block = torch.ones(n // 128, k // 128, device="cuda")
        for tokens in (32, 128, 512, 4096):
            x16 = torch.randn(tokens, k, device="cuda", dtype=torch.bfloat16)
            x8 = torch.randint(-127, 128, (tokens, k), dtype=torch.int8, device="cuda")
            xf = x16.to(torch.float8_e4m3fn)
            figures = [f"bf16 {timed([partial(torch.nn.functional.linear, x16, w) for w in w16]) * 1e3:.0f}"]
            try:
                figures.append(f"int_mm {timed([partial(torch._int_mm, x8, w.t()) for w in w8]) * 1e3:.0f}")
            except Exception as error:
                figures.append(f"int_mm {str(error)[:80]}")
            token = torch.ones(tokens, 1, device="cuda")
            figures.append(
                f"fp8 rows {timed([partial(torch._scaled_mm, xf, w.t(), scale_a=token, scale_b=row, out_dtype=torch.bfloat16, use_fast_accum=True) for w in f8]) * 1e3:.0f}"
            )
            for label, sa in (
                ("col-major", torch.ones(k // 128, tokens, device="cuda").t()),
                ("row-major", torch.ones(tokens, k // 128, device="cuda")),
            ):
                try:
                    figures.append(
                        f"fp8 blocks {label} {timed([partial(torch._scaled_mm, xf, w.t(), scale_a=sa, scale_b=block.t(), out_dtype=torch.bfloat16) for w in f8]) * 1e3:.0f}"
                    )
                except Exception as error:
                    figures.append(f"fp8 blocks {label} {str(error)[:160]}")
            print(name, tokens, "; ".join(figures), flush=True)


if __name__ == "__main__":
    main()
