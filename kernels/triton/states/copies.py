"""Copies of states from slot to slot, in all layers at once."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096  # numbers per program


def copy_states(stack: Tensor, sources: Tensor, targets: Tensor) -> None:
    """Copy slots `sources` [N] of `stack` [layers, slots, ...] to slots `targets` [N], both int32; no slot is in both,
    unless it is copied to itself.
    """
    layers, slots = stack.shape[:2]
    size = stack[0, 0].numel()
    _copy_kernel[(triton.cdiv(size, _BLOCK), len(sources), layers)](
        stack, sources, targets, slots, size, _BLOCK, num_warps=4
    )


@triton.jit(do_not_specialize=["slots"], do_not_specialize_on_alignment=["sources", "targets"])
def _copy_kernel(stack, sources, targets, slots, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    layer = stack + tl.program_id(2).to(tl.int64) * slots * SIZE
    source = tl.load(sources + tl.program_id(1)).to(tl.int64)
    target = tl.load(targets + tl.program_id(1)).to(tl.int64)
    inside = at < SIZE
    tl.store(layer + target * SIZE + at, tl.load(layer + source * SIZE + at, mask=inside), mask=inside)
