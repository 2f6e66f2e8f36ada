"""How fast weights reach the device: GB/s of loading a folder of shards, beside what the disk gives.

    python -m benchmarks.loading --shape llama-8b --layers 12

A folder of the shape with random bfloat16 weights, a shard per layer, is written to a temporary folder first. "Cold" is
with the folder's pages dropped from the page cache, "warm" with all of them in it. The disk is read by as many threads
as the loader has, in pieces of the same size, with and without the page cache, and what was read is thrown away.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from mmap import mmap
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from benchmarks.command_line import CommandLine, positive
from benchmarks.startup import write_folder
from thothy_ai.bench.shapes import SHAPES
from thothy_ai.engine.execution.device import resolve_device, resolve_dtype
from thothy_ai.engine.weights.assemble import assemble, model_config
from thothy_ai.engine.weights.huggingface import SafetensorsFolder
from thothy_ai.engine.weights.inventory import expected_tensors
from thothy_ai.engine.weights.reader import PIECE_BYTES, num_threads

GB = 1e9


class OneByOne:
    """Tensors by the safetensors library, one after the other."""

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype) -> None:
        self.folder, self.device, self.dtype = folder, device, dtype
        self._tensors = {}
        for path in folder.glob("*.safetensors"):
            handle = safe_open(path, "pt", device=str(device))
            self._tensors |= dict.fromkeys(handle.keys(), handle)

    def tensor(self, name: str, *_: int) -> Tensor:
        return self._tensors[name].get_tensor(name).to(self.dtype, copy=True)

    weight = dense = tensor

    def stored(self, name: str, *_: int, dtype: torch.dtype | None = None) -> Tensor:
        return self._tensors[name].get_tensor(name).to(dtype, copy=True)

    def holds(self, name: str, *shape: int) -> bool:
        return name in self._tensors and shape in ((), tuple(self._tensors[name].get_slice(name).get_shape()))


def by_the_library(folder: Path, device: torch.device, dtype: torch.dtype) -> None:
    assemble(model_config(folder), OneByOne(folder, device, dtype))


def by_the_loader(folder: Path, device: torch.device, dtype: torch.dtype) -> None:
    config = model_config(folder)
    with SafetensorsFolder(folder, device, dtype) as source:
        source.expect(expected_tensors(folder, config))
        assemble(config, source)


def from_the_disk(folder: Path, *, direct: bool) -> None:
    pieces = [
        (path, begin)
        for path in sorted(folder.glob("*.safetensors"))
        for begin in range(0, path.stat().st_size, PIECE_BYTES)
    ]
    with ThreadPoolExecutor(num_threads()) as threads:
        list(threads.map(lambda piece: read_piece(*piece, direct=direct), pieces))


def read_piece(path: Path, begin: int, *, direct: bool) -> None:
    buffer = mmap(-1, PIECE_BYTES)  # aligned, as direct reads want it
    file = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
    try:
        os.preadv(file, [buffer], begin)
    finally:
        os.close(file)
        buffer.close()


def drop_pages(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def seconds(work: Callable[[], None], device: torch.device) -> float:
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def measure(folder: Path, device: torch.device) -> None:
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    dtype = resolve_dtype("bfloat16", device)
    loader, library = partial(by_the_loader, folder, device, dtype), partial(by_the_library, folder, device, dtype)
    loader()  # the device's context, and the pinned buffers
    print(f"{size / GB:.2f} GB in {len(list(folder.glob('*.safetensors')))} shards, {num_threads()} threads, {device}")
    runs: dict[str, tuple[Callable[[], None], bool]] = {
        "disk, direct": (partial(from_the_disk, folder, direct=True), True),
        "disk, through the page cache": (partial(from_the_disk, folder, direct=False), True),
        "loader, cold": (loader, True),
        "loader, warm": (loader, False),
        "page cache alone": (partial(from_the_disk, folder, direct=False), False),
        "safetensors one by one, warm": (library, False),
        "safetensors one by one, cold": (library, True),
    }
    for name, (work, cold) in runs.items():
        if cold:
            drop_pages(folder)
        took = seconds(work, device)
        print(f"{name:<30} {took:7.2f} s {size / GB / took:7.2f} GB/s", flush=True)


def main() -> None:
    parser = CommandLine("loading", __doc__)
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--layers", type=positive(int), metavar="N", help="Fewer layers than the shape has.")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda.")
    given = parser.parse_args()
    with parser.checked(), tempfile.TemporaryDirectory() as made:
        device = resolve_device(given.device)
        layers = {"num_hidden_layers": given.layers} if given.layers else {}
        began = time.perf_counter()
        write_folder(SHAPES[given.shape] | layers, Path(made))
        print(f"written in {time.perf_counter() - began:.1f} s", flush=True)
        measure(Path(made), device)


if __name__ == "__main__":
    main()
