"""How programs that share a piece of work find out which of them ends it."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def last_to_arrive(counter, programs):
    """Whether all other `programs` have come here before; what they stored is seen then, and the counter is zero again.

    What is read of theirs must not come from the L1.
    """
    tl.debug_barrier()  # all threads have stored when one of them counts
    last = tl.atomic_add(counter, 1, sem="acq_rel") == programs - 1
    tl.debug_barrier()
    if last:
        tl.store(counter, 0)
    return last
