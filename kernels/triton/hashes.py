"""Triton's hash of a kernel, by which its cache finds what was compiled before, made the same in every process.

Up to 3.7, constants of the functions that a kernel calls are in its hash only if those were hashed before it
(triton-lang/triton#10494): threads that compile at once then hash the same kernels differently from start to start, and
compile them again.
"""

from __future__ import annotations

import inspect

from triton.runtime.jit import JITFunction


def hash_callees_first(kernel: object) -> None:
    """Hash a kernel, after all functions that it calls by their names. Triton's interpreter needs no hashes."""
    if not isinstance(kernel, JITFunction) or kernel.hash is not None:
        return
    for value in inspect.getclosurevars(kernel.fn).globals.values():
        hash_callees_first(value)
    _ = kernel.cache_key
