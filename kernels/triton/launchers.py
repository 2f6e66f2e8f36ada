"""Makes it safe for several threads to launch kernels for the first time at once.

Triton prepares a compiled kernel at its first launch, which only one thread at a time can do safely:

- Up to Triton 3.6 each signature has its own launcher, an extension module, and all of these have the same name. When
  such a module is loaded again, CPython returns the module last loaded under the name, with its functions replaced. A
  thread can then find another kernel's launcher in its module, which passes wrong arguments, or too many or too few.
- A kernel gets its launcher before its code is on the device, and its module before its function. A second thread would
  launch nothing.
"""

from __future__ import annotations

import threading

from triton.compiler import CompiledKernel

_PREPARES = threading.RLock()


def prepare_one_at_a_time() -> None:
    """Have only one thread at a time prepare this process's kernels; compilation, the long part, stays concurrent."""
    prepare = CompiledKernel._init_handles

    def prepare_in_turn(kernel: CompiledKernel) -> None:
        if kernel.function is None:  # set last; a thread that waited for another finds it set, and is done
            with _PREPARES:
                prepare(kernel)

    def run(kernel: CompiledKernel) -> object:
        prepare_in_turn(kernel)
        return kernel._run

    CompiledKernel._init_handles = prepare_in_turn
    CompiledKernel.run = property(run)
