"""Kernels that several threads compile have the same hashes in every process, whichever thread comes first."""

from __future__ import annotations

import os
import subprocess
import sys

HASHED = """
import torch
from thothy_ai.kernels.triton.sampling import argmax_kernel, filtered_kernel
from thothy_ai.kernels.triton.sampling.token_chooser import TokenChooser
{first}
TokenChooser(4, torch.device("cpu"))
print(argmax_kernel.argmax_kernel.hash, filtered_kernel.filtered_kernel.hash)
"""


def hashes(first: str) -> list[str]:
    """Of the sampler's kernels in a new process, in which something else happens first."""
    compiling = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    code = HASHED.format(first=first)
    done = subprocess.run([sys.executable, "-c", code], env=compiling, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_sampler_s_kernels_are_hashed_before_threads_compile_them() -> None:
    assert "None" not in hashes("")


def test_their_hashes_do_not_depend_on_what_was_hashed_before() -> None:
    assert hashes("argmax_kernel.gumbel.cache_key") == hashes("argmax_kernel.load_scores.cache_key") == hashes("")
