"""Tries tilings of the kernels for integer weights with groups, to choose from: `python -m benchmarks.kernels.grouped_tilings`."""

from __future__ import annotations

import multiprocessing
import time
from functools import partial

import torch

from benchmarks.kernels.layers import LLAMA, copies, timed
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.reference import grouped as reference
from thothy_ai.kernels.triton import skinny_matmul
from thothy_ai.kernels.triton.grouped.dequantize import dequantize
from thothy_ai.kernels.triton.grouped.skinny import multiply
from thothy_ai.kernels.triton.grouped.tiles import GroupedTile
from thothy_ai.kernels.triton.int8_matmul import scale_sums
from thothy_ai.kernels.triton.skinny_matmul_tiles import MatmulTile

SHAPES = dict(LLAMA.matmuls)
SMS = 132


def weight_of(n, k, group, zeros, lanes, bits=4):
    reference.suited_lanes = lambda *_: lanes
    numbers = torch.randint(0, 1 << bits, (n, k), dtype=torch.uint8, device="cuda")
    g = -(-k // group)
    scales = (torch.rand(g, n, device="cuda") * 0.02).half()
    z = torch.randint(0, 1 << bits, (g, n), dtype=torch.uint8, device="cuda") if zeros else None
    return reference.packed(numbers, scales, z, bits, group)


def tile(n, out_tile, tokens, stages, warps, per_sm):
    return GroupedTile(out_tile, tokens, max(1, round(SMS * per_sm / -(-n // out_tile))), stages, warps)


def jobs():
    found = []
    for name, (n, _k) in SHAPES.items():
        for lanes in (64, 32):
            for stages, per_sm in ((2, 2), (3, 2), (4, 2), (2, 3), (3, 3), (2, 4), (3, 4), (2, 6)):
                found.append((name, 16, 128, False, lanes, tile(n, 64, 16, stages, 4, per_sm)))
            for stages, warps, per_sm in ((2, 8, 2), (3, 8, 2), (2, 4, 2), (3, 4, 2)):
                found.append((name, 16, 128, False, lanes, tile(n, 128, 16, stages, warps, per_sm)))
        found.append((name, 16, 128, True, 64, tile(n, 64, 16, 3, 4, 3)))
        found.append((name, 16, 128, True, 32, tile(n, 64, 16, 3, 4, 3)))
        found.append((name, 16, 32, False, 16, tile(n, 64, 16, 3, 4, 3)))
        found.append((name, 16, 32, True, 16, tile(n, 64, 16, 4, 4, 4)))
        found.append((name, 1, 128, False, 64, tile(n, 64, 16, 3, 4, 3)))
    for name in ("qkv", "gate_up"):
        n = SHAPES[name][0]
        for tokens in (32, 64, 128):
            for lanes, out_tile, stages, warps, per_sm in (
                (64, 64, 2, 4, 2), (32, 64, 3, 4, 2), (32, 128, 2, 8, 1), (32, 128, 3, 8, 1), (64, 128, 2, 8, 1), (32, 128, 3, 4, 1),
            ):
                found.append((name, tokens, 128, False, lanes, tile(n, out_tile, tokens, stages, warps, per_sm)))
        for rows in (256, 512, 1024):
            for tokens, lanes, out_tile, stages, warps in (
                (128, 32, 128, 2, 8), (128, 32, 128, 3, 8), (128, 64, 128, 2, 8), (256, 32, 128, 2, 8), (128, 32, 256, 2, 8),
            ):
                found.append((name, rows, 128, False, lanes, GroupedTile(out_tile, tokens, 1, stages, warps)))
    return found


def run(weight, x, out, done, cut):
    multiply(x, weight, None, out, cut, done)


def compile_some(some):
    for name, rows, group, zeros, lanes, cut in some:
        n, k = SHAPES[name]
        weight = weight_of(n, k, group, zeros, lanes)
        x = torch.randn(rows, k, device="cuda", dtype=torch.bfloat16)
        try:
            run(weight, x, x.new_empty(rows, n), torch.zeros(n, dtype=torch.int32, device="cuda"), cut)
            torch.cuda.synchronize()
        except Exception:
            pass


def main():
    began = time.time()
    torch.manual_seed(0)
    todo = jobs()
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=compile_some, args=(todo[i::15],)) for i in range(15)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"compiled {len(todo)} in {time.time() - began:.0f} s", flush=True)
    weights, plains, results = {}, {}, []
    for name, rows, group, zeros, lanes, cut in todo:
        n, k = SHAPES[name]
        key = (name, group, zeros, lanes)
        if key not in weights:
            weights.clear()
            weights[key] = [weight_of(n, k, group, zeros, lanes) for _ in range(copies(n * k // 2))]
        x = torch.randn(rows, k, device="cuda", dtype=torch.bfloat16)
        if (name, rows) not in plains:
            dense = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(copies(2 * n * k))]
            plains[name, rows] = timed([partial(torch.nn.functional.linear, x, w) for w in dense])
            del dense
        done = torch.zeros(n, dtype=torch.int32, device="cuda")
        out = x.new_empty(rows, n)
        try:
            run(weights[key][0], x, out, done, cut)
            want = x.float() @ reference.dequantized(weights[key][0]).T
            error = float((out - want).norm() / want.norm())
            took = timed([partial(run, w, x, out, done, cut) for w in weights[key]])
        except Exception as failure:
            results.append((name, rows, group, zeros, 9e9, f"lanes {lanes} {tuple(cut)} failed {str(failure)[:60]}"))
            continue
        wrong = "" if error < 4e-3 else f" WRONG {error:.1e}"
        results.append((name, rows, group, zeros, took, f"lanes {lanes} {tuple(cut)}{wrong}"))
    for name, rows, group, zeros, took, label in sorted(results):
        print(f"{name:8} T={rows:4} g={group:3} z={zeros:d} {took * 1e3:7.1f} us x{plains[name, rows] / took:.2f} {label}", flush=True)
    print(f"few done at {time.time() - began:.0f} s", flush=True)
    many()
    print(f"many done at {time.time() - began:.0f} s", flush=True)
    eights()
    print(f"all done at {time.time() - began:.0f} s", flush=True)


def many():
    for name in SHAPES:
        n, k = SHAPES[name]
        for lanes in (64, 32):
            some = [weight_of(n, k, 128, False, lanes) for _ in range(copies(n * k // 2))]
            outs = [torch.empty(n, k, dtype=torch.bfloat16, device="cuda") for _ in range(copies(2 * n * k))]
            for words, warps in ((512, 4), (1024, 4), (2048, 4), (2048, 8), (4096, 8)):
                took = timed([partial(dequantize, w, o, 0, words, warps) for w, o in zip(some, outs)])
                print(f"dequantize {name} lanes {lanes} words {words} warps {warps}: {took * 1e3:.1f} us {2.5 * n * k / took / 1e6:.0f} GB/s", flush=True)
        some = [weight_of(n, k, 128, False, 64) for _ in range(copies(n * k // 2))]
        for tokens in (2048, 4096):
            x = torch.randn(tokens, k, device="cuda", dtype=torch.bfloat16)
            for _again in range(2):
                figures = [f"bf16 {timed([partial(torch.nn.functional.linear, x, w) for w in outs]) * 1e3:.0f}"]
                for chunk in (40, 64, 128, 1024):
                    took = timed([partial(chunked, w, x, chunk << 20) for w in some])
                    figures.append(f"{chunk} MiB {took * 1e3:.0f}")
                print(f"many {name} T={tokens}: " + ", ".join(figures), flush=True)


def chunked(weight, x, most):
    n, k = weight.outputs, weight.inputs
    out = x.new_empty(len(x), n)
    pieces = -(-2 * n * k // most)
    size = -(-n // pieces // 256) * 256
    scratch = x.new_empty(min(size, n), k)
    for begin in range(0, n, size):
        rows = min(size, n - begin)
        dequantize(weight, scratch[:rows], begin)
        torch.mm(x, scratch[:rows].t(), out=out[:, begin : begin + rows])
    return out


def int8_cublas(x, w, out):
    scale_sums(torch._int_mm(x.values, w.values.t()), x.scales, w.scales, None, out)


def eights():
    for name in ("qkv", "gate_up"):
        n, k = SHAPES[name]
        w8 = [Quantized(torch.randint(-127, 128, (n, k), dtype=torch.int8, device="cuda"), torch.rand(n, 1, device="cuda")) for _ in range(copies(n * k))]
        for tokens in (16, 128, 512, 4096):
            x16 = torch.randn(tokens, k, device="cuda", dtype=torch.bfloat16)
            x8 = Quantized(torch.randint(-127, 128, (tokens, k), dtype=torch.int8, device="cuda"), torch.rand(tokens, 1, device="cuda"))
            out = x16.new_empty(tokens, n)
            w16 = [w.values.bfloat16() for w in w8]
            figures = [f"bf16 {timed([partial(torch.nn.functional.linear, x16, w) for w in w16]) * 1e3:.0f}"]
            del w16
            if tokens > 16:
                figures.append(f"int_mm and scales {timed([partial(int8_cublas, x8, w, out) for w in w8]) * 1e3:.0f}")
            done = skinny_matmul.counters(w8[0])
            for cut in (MatmulTile(64, min(tokens, 128), 128, 2 if tokens <= 16 else 1, 4), MatmulTile(128, 128, 128, 1, 3, 8), MatmulTile(128, 256, 128, 1, 3, 8), MatmulTile(128, 128, 128, 1, 4, 4), MatmulTile(256, 128, 128, 1, 3, 8)):
                try:
                    figures.append(f"{tuple(cut)} {timed([partial(skinny_matmul.multiply, x8, w, None, out, cut, done) for w in w8]) * 1e3:.0f}")
                except Exception as error:
                    figures.append(f"{tuple(cut)} {str(error)[:40]}")
            print("int8", name, tokens, "; ".join(figures), flush=True)


if __name__ == "__main__":
    main()
