"""How the experts' matmuls are cut for the GPU: the one place that says so, set by measurement."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from thothy_ai.kernels.triton.sms import RESERVED, SMs

ENDLESS = 1 << 40  # bytes of shared memory, of Triton's interpreter


class ExpertTile(NamedTuple):
    """How a matmul is cut and compiled.

    A program has `tokens` of one expert and `outputs` of its weight's rows (of gate and of up, each), both powers of
    two. It takes `step` numbers of each at a time and loads `stages` steps ahead. `weights_first`: the weight's rows
    are the long side of the tensor cores' tiles, which suits few tokens. Of MXFP4, a step times the outputs is 4,096 at
    least: the tensor memory accelerator writes no less than 128 bytes of scales. A program whose expert has no more
    than `short` tokens left computes as if its tile had only so many.
    """

    tokens: int
    outputs: int
    step: int
    stages: int
    warps: int
    weights_first: bool = False
    short: int = 0

    def within(self, shared: int, parts: int, size: int) -> ExpertTile:
        """With fewer stages if a program has less shared memory than this needs, for numbers of `size` bytes."""
        stage = (self.tokens + parts * self.outputs) * self.step * size
        return self._replace(stages=max(1, min(self.stages, (shared - RESERVED) // stage)))


class ExpertTiles(NamedTuple):
    """Tiles of the gate-up matmul and of the down matmul, with equal numbers of tokens."""

    gate_up: ExpertTile
    down: ExpertTile

    def within(self, shared: int, size: int) -> ExpertTiles:
        return ExpertTiles(self.gate_up.within(shared, 2, size), self.down.within(shared, 1, size))


# By format, the tiles for so many tokens per expert at most, on average (H200, benchmarks/kernels/experts.py).
_FEW = ExpertTile(16, 64, 128, 3, 4, weights_first=True)
_SOME = ExpertTile(32, 64, 128, 3, 4, weights_first=True)
_SLOW = ExpertTile(32, 64, 64, 2, 4)  # float32 is multiplied without tensor cores
_TILES: dict[str, tuple[tuple[float, ExpertTiles], ...]] = {
    "16 bits": (
        (8, ExpertTiles(_FEW, _FEW)),
        (24, ExpertTiles(ExpertTile(32, 64, 64, 5, 4, weights_first=True), _SOME)),
        (56, ExpertTiles(ExpertTile(64, 64, 64, 4, 4, weights_first=True), ExpertTile(64, 128, 64, 3, 4))),
        (math.inf, ExpertTiles(ExpertTile(128, 128, 64, 4, 8, short=64), ExpertTile(128, 256, 64, 3, 8, short=64))),
    ),
    "fp8": (
        (8, ExpertTiles(_FEW, _FEW)),
        (24, ExpertTiles(_SOME, ExpertTile(32, 64, 64, 5, 4, weights_first=True))),
        (64, ExpertTiles(ExpertTile(64, 64, 128, 3, 4, weights_first=True), ExpertTile(64, 128, 128, 3, 4))),
        (math.inf, ExpertTiles(ExpertTile(128, 128, 128, 3, 8, short=64), ExpertTile(128, 128, 128, 3, 8, short=64))),
    ),
    "mxfp4": (
        (8, ExpertTiles(_FEW, _FEW)),
        (24, ExpertTiles(_SOME, _SOME)),
        (56, ExpertTiles(ExpertTile(64, 64, 128, 3, 4, weights_first=True), ExpertTile(64, 128, 64, 3, 4))),
        (math.inf, ExpertTiles(ExpertTile(128, 128, 128, 3, 8, weights_first=True), ExpertTile(128, 128, 64, 4, 8))),
    ),
    "32 bits": ((math.inf, ExpertTiles(_SLOW, _SLOW)),),
}


def suited(rows: float, form: str, size: int, shared: int) -> ExpertTiles:
    """For so many tokens per expert on average, of numbers of `size` bytes, and programs with so much shared memory."""
    return next(tiles for most, tiles in _TILES[form] if rows <= most).within(shared, size)


def form_of(dtype: torch.dtype, *, mxfp4: bool) -> str:
    """The format of weights as the tiles are listed by, for activations of `dtype`."""
    if dtype.itemsize == 4:
        return "32 bits"
    return "mxfp4" if mxfp4 else "fp8" if dtype.itemsize == 1 else "16 bits"


def shared_memory(device: torch.device) -> int:
    """Bytes that a program may have."""
    return SMs.of(device).shared_of_program if device.type == "cuda" else ENDLESS
