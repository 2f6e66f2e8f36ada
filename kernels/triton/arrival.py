"""Lets the programs that share a piece of work find out which of them arrives last."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def last_to_arrive(counter, programs):
    """Whether this is the last of `programs` to arrive. Then it sees the others' stores, and the counter is zero.

    The last program must not read the others' stores through its L1 cache.
    """
    tl.debug_barrier()  # all threads have stored before one of them counts
    last = tl.atomic_add(counter, 1, sem="acq_rel") == programs - 1
    tl.debug_barrier()
    if last:
        tl.store(counter, 0)
    return last
