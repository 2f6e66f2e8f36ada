"""`python -m benchmarks.kernels [module ...]`: every kernel on this GPU, against its memory's copy bandwidth."""

from __future__ import annotations

import argparse
import importlib

import torch

from benchmarks.kernels.bandwidth import copy_bandwidth
from benchmarks.results import table

MODULES = (
    "decode_attention",
    "prefill_attention",
    "windows",
    "flex",
    "layers",
    "experts",
    "adapters",
    "grouped",
    "states",
    "sampling",
    "scores",
)
Row = tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.kernels", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="module", help=f"one of {', '.join(MODULES)}. Default: all.")
    names = parser.parse_args().names
    if not torch.cuda.is_available():
        parser.error("this needs a GPU")
    copy = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, copies at {copy:.0f} GB/s", flush=True)
    for name in names or MODULES:
        module = importlib.import_module(f"benchmarks.kernels.{name}")
        print(f"\n### {name}\n\n{table(*against(copy, module.HEADER, module.measure()))}", flush=True)


def against(copy: float, header: Row, rows: list[Row]) -> tuple[Row, list[Row]]:
    """With one more column where a kernel's bandwidth is known."""
    if "GB/s" not in header:
        return header, rows
    column = header.index("GB/s")
    return (*header, "of copy"), [(*row, share(row[column], copy)) for row in rows]


def share(bandwidth: str, copy: float) -> str:
    return f"{float(bandwidth) / copy:.0%}" if bandwidth.replace(".", "", 1).isdigit() else "-"


if __name__ == "__main__":
    main()
