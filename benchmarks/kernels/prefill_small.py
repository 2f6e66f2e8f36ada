"""Tilings of prefill attention over steps of few chunks."""

from __future__ import annotations

import sys

from benchmarks.kernels.prefill_attention import SHAPES, Problem, timed
from thothy_ai.kernels.triton.attention.prefill_attention import Tiling

CASES = {
    "980 of 1236": [(980, 1236)],
    "980 fresh": [(980, 980)],
    "980 of 2480": [(980, 2480)],
    "600, 380 of 900": [(600, 600), (380, 900)],
    "512 of 1232": [(512, 1232)],
    "5 x 196 of 440": [(196, 440)] * 5,
    "20 x 48 of 1748": [(48, 1748)] * 20,
    "2000 of 2256": [(1000, 1256)] * 2,
    "4 x 2048": [(2048, 2048)] * 4,
}
TILINGS = [
    Tiling(128, 32, 4, 3),
    Tiling(128, 64, 8, 2),
    Tiling(128, 64, 8, 3),
    Tiling(64, 32, 4, 3),
    Tiling(64, 64, 4, 2),
    Tiling(64, 64, 4, 3),
    Tiling(64, 128, 4, 2),
    Tiling(64, 32, 4, 4),
    Tiling(32, 64, 4, 2),
]


def main() -> None:
    for shape, sizes in SHAPES.items():
        print(shape, *CASES, sep=" | ", flush=True)
        for tiling in TILINGS:
            figures = []
            for lengths in CASES.values():
                try:
                    figures.append(timed(lengths, Problem(*sizes), tiling)[0])
                except Exception as refusal:  # noqa: BLE001  shown
                    print(tiling, type(refusal).__name__, str(refusal)[:150], file=sys.stderr, flush=True)
                    break
            print(str(tiling).removeprefix("Tiling"), *figures, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
