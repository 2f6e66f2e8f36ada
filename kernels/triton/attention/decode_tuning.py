"""How decode attention is cut and compiled, by what it is built for and by what the device's SMs hold."""

from __future__ import annotations

from dataclasses import dataclass, replace

from thothy_ai.kernels.paged import AttentionShape
from thothy_ai.kernels.triton.sms import RESERVED, SMs
from thothy_ai.kernels.triton.tiles import power_of_two

_MIN_TILE = 16  # of a matmul on tensor cores


@dataclass(frozen=True)
class DecodeTuning:
    """How the kernel is cut and compiled.

    `tile`: tokens at a time. `ahead`: tiles that a program loads ahead. `warps`, `registers`: of a program, and the
    most that a thread of it may have. `programs`: those of the grid; none is idle when all fit on the GPU at once.
    `group_rows` is the maximum number of sequences in a group.
    """

    tile: int
    ahead: int
    warps: int
    programs: int
    group_rows: int
    registers: int | None = None

    @staticmethod
    def suited(shape: AttentionShape) -> DecodeTuning:
        if shape.device.type == "cpu":
            return DecodeTuning(tile=32, ahead=1, warps=4, programs=8, group_rows=_group_rows(shape))
        return DecodeTuning.on(SMs.of(shape.device), shape)

    @staticmethod
    def on(sms: SMs, shape: AttentionShape) -> DecodeTuning:
        """What an H200 runs fastest (benchmarks/kernels/decode_attention.py; latents: not measured yet), as far as
        these SMs hold it.
        """
        row_bytes = power_of_two(shape.head_dim) * shape.dtype.itemsize
        group_rows = _group_rows(shape)
        if shape.latent:
            tuning = DecodeTuning(32, ahead=2, warps=8, programs=sms.count, group_rows=group_rows)
        elif row_bytes > 256 or _unpacked_in_shared(shape):
            tile = min(32, max(_MIN_TILE, 16384 // row_bytes))
            tuning = DecodeTuning(tile, ahead=2, warps=4, programs=2 * sms.count, group_rows=group_rows)
        elif _over_fp8(shape):
            tuning = DecodeTuning(64, ahead=2, warps=2, programs=4 * sms.count, group_rows=group_rows)
        else:
            tuning = DecodeTuning(64, 1, 4, 4 * sms.count, group_rows, registers=128)
        tuning = tuning.within(sms.shared_of_program, shape)
        at_once = max(1, sms.shared // (tuning.shared_bytes(shape) + RESERVED))
        return replace(tuning, programs=min(tuning.programs, at_once * sms.count))

    def within(self, shared: int, shape: AttentionShape) -> DecodeTuning:
        """With as much less ahead, then in a tile, that a program needs no more than `shared` bytes, if it can."""
        if self.shared_bytes(shape) <= shared:
            return self
        if self.ahead > 1:
            return replace(self, ahead=self.ahead - 1).within(shared, shape)
        if self.tile > _MIN_TILE:
            return replace(self, tile=self.tile // 2).within(shared, shape)
        return self

    def shared_bytes(self, shape: AttentionShape) -> int:
        """Shared memory of a program, at most: keys and values, queries, a tile's weights, places and scales."""
        rows = max(16, self.group_rows * power_of_two(shape.heads_per_kv))
        dim, copies = padded_dim(shape), 2
        if shape.latent:  # keys are values, too
            dim, copies = dim + padded_rest(shape), 1
        tiles = copies * (self.ahead + _unpacked_in_shared(shape)) * self.tile * dim * shape.kv_dtype.itemsize
        return tiles + rows * (dim + self.tile) * shape.dtype.itemsize + 16 * (self.ahead + 1) * self.tile


def padded_dim(shape: AttentionShape) -> int:
    """The head size as it is computed with: tensor cores want 16 numbers, and of an fp8 cache half a head at a time."""
    return power_of_two(shape.value_dim, 32 if _over_fp8(shape) else 16)


def padded_rest(shape: AttentionShape) -> int:
    """The same of what a key has beside its value, which is computed apart: both together are no power of two."""
    return power_of_two(shape.rest_dim, 16)


def _over_fp8(shape: AttentionShape) -> bool:
    return shape.kv_dtype.itemsize == 1


def _unpacked_in_shared(shape: AttentionShape) -> bool:
    """Whether fp8 becomes float32: no operand of tensor cores, so a tile goes through shared memory a second time."""
    return _over_fp8(shape) and shape.dtype.itemsize == 4


def _group_rows(shape: AttentionShape) -> int:
    return min(16, max(1, 32 // power_of_two(shape.heads_per_kv)))
