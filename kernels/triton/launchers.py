"""Kernels that several threads launch for the first time, at once.

Triton prepares a compiled kernel at its first launch, and is safe for one thread at a time only:

- Up to Triton 3.6 each signature has a launcher of its own, an extension module, and all have one name. CPython gives
  whoever loads such a module again the one that was last loaded under the name, with its functions exchanged. A thread
  that has loaded a launcher then finds another's in it: the kernel gets a wrong number of arguments, or wrong ones.
- A kernel has its launcher before its code is on the device. A second thread would launch nothing.
"""

from __future__ import annotations

import threading

from triton.compiler import CompiledKernel

_PREPARES = threading.RLock()


def prepare_one_at_a_time() -> None:
    """Let the kernels of this process be prepared by one thread at a time; compilation, the long part, is free."""
    CompiledKernel.run = property(_run)


def _run(kernel: CompiledKernel) -> object:
    """The kernel's launcher. Its code, which arrives last, says whether it is prepared."""
    if kernel.module is None:
        with _PREPARES:
            kernel._init_handles()
    return kernel._run
