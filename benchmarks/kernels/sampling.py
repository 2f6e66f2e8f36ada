"""Sampling: time of a step's choices, and how fast that reads its logits once. As a module, it tries other tiles, too.

Filtered rows read theirs several times. Steps of few rows take turns among inputs that the L2 does not hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle

import torch
import triton.testing
from torch import Tensor

from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.step import Start, StartedRows
from thothy_ai.engine.execution.sampler import Sampler
from thothy_ai.kernels import sampling
from thothy_ai.kernels.sampling import Column, SamplingBatch, Work
from thothy_ai.kernels.triton.sampling.launches import Tile
from thothy_ai.kernels.triton.sampling.token_chooser import TokenChooser

ROWS = (1, 64, 256, 768)
VOCABULARIES = (128_256, 151_936)
KNOWN = 1000  # tokens that a row has
INPUT_BYTES = 256 << 20  # of the inputs that take turns, at least


@dataclass(frozen=True)
class Case:
    """How the rows of a step choose."""

    name: str
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    masked: bool = False
    spread: float = 3.0  # of the logits: with 3, the likeliest of 128,256 tokens has 4 %, with 6 most often the half

    def parameters(self, vocab: int, seed: int = 0) -> list[float]:
        """A row of the sampler's table."""
        return sampling.parameters(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            seed=seed,
            vocab_size=vocab,
        )

    def work(self, vocab: int) -> Work:
        """What a step of such rows takes."""
        kind = int(self.parameters(vocab)[Column.KIND])
        return Work.of([kind], penalized=self.repetition_penalty != 1)


GREEDY = Case("greedy")
UNFILTERED = Case("draw", temperature=1.0)
BOTH = Case("draw, top-k 50, top-p 0.9", temperature=0.8, top_k=50, top_p=0.9)
NUCLEUS = Case("draw, top-p 0.95", temperature=1.0, top_p=0.95)
CASES = (
    GREEDY,
    Case("greedy, masked", masked=True),
    Case("greedy, penalized", repetition_penalty=1.2),
    UNFILTERED,
    Case("draw, top-k 50", temperature=1.0, top_k=50),
    NUCLEUS,
    BOTH,
    Case("draw, top-k 20, top-p 0.95, peaked", temperature=1.0, top_k=20, top_p=0.95, spread=6.0),
    Case("draw, top-p 0.9, masked, penalized", 0.4, top_p=0.9, repetition_penalty=1.02, masked=True),
    Case("draw, min-p 0.05", temperature=1.0, min_p=0.05),
    Case("draw, top-k 50, top-p 0.9, masked", temperature=0.8, top_k=50, top_p=0.9, masked=True),
)
CHOOSING_TILES = [
    Tile(512, 8, 8),
    Tile(512, 8, 4),
    Tile(256, 8, 8),
    Tile(256, 8, 4),
    Tile(1024, 8, 16),
    Tile(512, 8, 16),
]
FILTERING_TILES = [Tile(1024, 8, 32), Tile(512, 8, 16), Tile(1024, 8, 16), Tile(256, 8, 8), Tile(2048, 8, 32)]

Row = tuple[str, ...]
HEADER: Row = ("sampling", "rows x vocabulary", "us", "GB/s")


def measure() -> list[Row]:
    """All cases, then torch's argmax of the same logits and the host's time of a greedy step."""
    shapes = [(rows, vocab) for vocab in VOCABULARIES for rows in ROWS]
    return [
        *((case.name, *timed(case, *shape)) for case in CASES for shape in shapes),
        *(("torch.argmax", *_line(shape, _milliseconds(_argmax(*shape)))) for shape in shapes),
        *(
            (f"{case.name}, the host's share", f"{rows}", f"{_host_microseconds(case, rows):.0f}", "-")
            for case in (GREEDY, NUCLEUS)
            for rows in ROWS
        ),
    ]


def sweep() -> Iterator[Row]:
    """Other tiles for rows that are read once, tried or searched."""
    for rows in (1, 64, 768):
        for case, tiles in (
            (GREEDY, CHOOSING_TILES),
            (UNFILTERED, CHOOSING_TILES),
            (NUCLEUS, CHOOSING_TILES),
            (BOTH, FILTERING_TILES),
        ):
            for tile in tiles:
                yield f"{case.name} {tile}", *timed(case, rows, VOCABULARIES[0], tile)


def timed(case: Case, rows: int, vocab: int, tile: Tile | None = None) -> Row:
    """(shape, microseconds, GB/s), or the reason why it does not run."""
    tiles = {} if tile is None else {"choosing": tile, "filtering": tile}
    chooser = TokenChooser(rows, torch.device("cuda"), **tiles)
    steps = cycle(_steps(case, rows, vocab))
    try:
        return _line((rows, vocab), _milliseconds(lambda: chooser(next(steps), case.work(vocab))))
    except triton.OutOfResources as refusal:
        return f"{rows} x {vocab}", str(refusal), "-"


def _line(shape: tuple[int, int], milliseconds: float) -> Row:
    rows, vocab = shape
    return f"{rows} x {vocab}", f"{milliseconds * 1e3:.1f}", f"{rows * vocab * 2 / milliseconds / 1e6:.0f}"


def _milliseconds(call: Callable[[], Tensor]) -> float:
    median: float = triton.testing.do_bench_cudagraph(call, return_mode="median")
    return median


def _argmax(rows: int, vocab: int) -> Callable[[], Tensor]:
    steps = cycle(_steps(GREEDY, rows, vocab))
    return lambda: next(steps).logits.argmax(dim=-1)


def _steps(case: Case, rows: int, vocab: int) -> list[SamplingBatch]:
    table = [case.parameters(vocab, seed) for seed in range(rows)]
    mask = torch.randint(-(2**31), 2**31, (rows, -(-vocab // 32)), dtype=torch.int64).to("cuda", torch.int32)
    shared = {
        "rows": torch.arange(rows, device="cuda"),
        "positions": torch.full((rows,), KNOWN, device="cuda"),
        "token_ids": torch.randint(vocab, (rows, 4 * KNOWN), dtype=torch.int32, device="cuda"),
        "bitmask": mask if case.masked else None,
        "table": torch.tensor(table, dtype=torch.float64, device="cuda"),
    }
    inputs = -(-INPUT_BYTES // (rows * vocab * 2))
    return [
        SamplingBatch(logits=torch.randn(rows, vocab, device="cuda", dtype=torch.bfloat16) * case.spread, **shared)
        for _ in range(inputs)
    ]


def _host_microseconds(case: Case, rows: int, calls: int = 200) -> float:
    """What the host is busy with for one step while the device works on others."""
    vocab, members = 1024, list(range(rows))
    params = SamplingParams(temperature=case.temperature, top_p=case.top_p)
    sampler = Sampler(rows, vocab, torch.device("cuda"))
    sampler.start_rows(StartedRows.of(Start(row, params, row) for row in members))
    step = _steps(case, rows, vocab)[0]
    begun = 0.0
    for call in range(calls + 10):
        if call == 10:
            torch.cuda.synchronize()
            begun = time.perf_counter()
        sampler.sample(step.logits, step.rows, step.positions, step.token_ids, None, members)
    spent = time.perf_counter() - begun
    torch.cuda.synchronize()
    return spent / calls * 1e6


if __name__ == "__main__":
    for row in (HEADER, *measure()):
        print(*row, sep="\t", flush=True)
    for row in sweep():
        print(*row, sep="\t", flush=True)
