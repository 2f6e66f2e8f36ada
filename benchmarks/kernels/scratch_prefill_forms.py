"""Forms of prefill attention over an fp8 cache, in microseconds."""

from __future__ import annotations

import sys
from dataclasses import replace

import triton

from benchmarks.kernels import prefill_attention as bench
from benchmarks.kernels import scratch_old_prefill as old
from thothy_ai.kernels.triton.attention import prefill_attention as new
from thothy_ai.kernels.triton.attention.prefill_attention import Tiling


class OldPrefill(old.PrefillAttention):
    def __call__(self, *arguments, fresh=None, **named):
        super().__call__(*arguments, **named)


TILINGS = {
    "128x32": Tiling(128, 32, 4, 3),
    "128x64, 4w": Tiling(128, 64, 4, 2),
    "128x64, 8w": Tiling(128, 64, 8, 3),
    "256x32, 8w": Tiling(256, 32, 8, 3),
    "256x64, 8w": Tiling(256, 64, 8, 2),
    "64x64, 4w": Tiling(64, 64, 4, 3),
}


def main() -> None:
    cases = bench.steps() | {
        "980 after 256": [(980, 1236)],
        "512 after 720": [(512, 1232)],
        "980 after 1500": [(980, 2480)],
        "20 x 48 after 1700": [(48, 1748)] * 20,
    }
    llama = bench.Problem(*bench.SHAPES["llama-8b"])
    forms = [
        ("bf16 cache", new.PrefillAttention, llama, None),
        ("fp8 before", OldPrefill, replace(llama, fp8=True), None),
        *(
            (f"fp8 {'fresh' if fresh else 'cache'}, {name}", new.PrefillAttention, replace(llama, fp8=True, fresh=fresh), t)
            for fresh in (False, True)
            for name, t in TILINGS.items()
        ),
    ]
    print("form", *cases, sep=" | ", flush=True)
    for name, kind, problem, tiling in forms:
        bench.PrefillAttention = kind
        figures = []
        for lengths in cases.values():
            try:
                figures.append(bench.timed(lengths, problem, tiling)[0])
            except Exception as refusal:
                print(name, type(refusal).__name__, str(refusal)[:200], file=sys.stderr, flush=True)
                figures.append("-")
                break
        print(name, *figures, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
