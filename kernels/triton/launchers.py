"""Kernels that several threads launch for the first time, at once.

Triton prepares a compiled kernel at its first launch, and is safe for one thread at a time only:

- Up to Triton 3.6 each signature has a launcher of its own, an extension module, and all have one name. CPython gives
  whoever loads such a module again the one that was last loaded under the name, with its functions exchanged. A thread
  that has loaded a launcher then finds another's in it: the kernel gets a wrong number of arguments, or wrong ones.
- A kernel has its launcher before its code is on the device, and its module before its function. A second thread would
  launch nothing.
"""

from __future__ import annotations

import threading

from triton.compiler import CompiledKernel

_PREPARES = threading.RLock()


def prepare_one_at_a_time() -> None:
    """Let the kernels of this process be prepared by one thread at a time; compilation, the long part, is free."""
    prepare = CompiledKernel._init_handles

    def prepare_in_turn(kernel: CompiledKernel) -> None:
        if kernel.function is None:  # it arrives last; whoever waits for another's finds the module, and is done
            with _PREPARES:
                prepare(kernel)

    def run(kernel: CompiledKernel) -> object:
        prepare_in_turn(kernel)
        return kernel._run

    CompiledKernel._init_handles = prepare_in_turn
    CompiledKernel.run = property(run)
