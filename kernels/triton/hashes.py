"""Makes the hashes of kernels, which are the keys of Triton's cache, independent of the order of compilation.

Up to Triton 3.7, a kernel's hash has the constants of a function that it calls only if that function was hashed before
(triton-lang/triton#10494): if several threads compile, the hash would differ from start to start, and the kernel would
be compiled again.
"""

from __future__ import annotations

import inspect
import sys

from triton.runtime.jit import JITFunction


def hash_kernels(package: str) -> None:
    """Hash all Triton functions of the package's imported modules. Call it before anything is compiled."""
    for name in sorted(sys.modules):
        if name.startswith(f"{package}."):
            for value in [*vars(sys.modules[name]).values()]:
                hash_callees_first(value)


def hash_callees_first(value: object, callers: tuple[object, ...] = ()) -> None:
    """Hash a kernel after all functions that it calls by name. Triton's interpreter needs no hashes.

    A function seems to call what is named like an attribute in it, even itself: a `dot` that calls `tl.dot`. So none of
    the `callers` is followed again.
    """
    if not isinstance(value, JITFunction) or value.hash is not None or value in callers:
        return
    for called in inspect.getclosurevars(value.fn).globals.values():
        hash_callees_first(called, (*callers, value))
    _ = value.cache_key
