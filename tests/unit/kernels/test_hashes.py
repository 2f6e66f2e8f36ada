"""Kernels have the same hashes in every process, whichever is asked for first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.interpreter import compiling_environment

PRINTED = """
import sys
from triton.runtime.jit import JITFunction
{first}
import thothy_ai.kernels.triton.operations
for name in sorted(sys.modules):
    if name.startswith("thothy_ai.kernels.triton."):
        for value in vars(sys.modules[name]).values():
            if isinstance(value, JITFunction):
                print(name, value.fn.__name__, value.hash)
"""
SOME_FIRST = """
from thothy_ai.kernels.triton.hashes import hash_callees_first
from thothy_ai.kernels.triton import rope
from thothy_ai.kernels.triton.sampling import filtered_kernel
for value in reversed([*vars(filtered_kernel).values(), *vars(rope).values()]):
    hash_callees_first(value)
"""

NAMED_LIKE_ATTRIBUTES = """
import triton
import triton.language as tl
from thothy_ai.kernels.triton.hashes import hash_callees_first

@triton.jit
def dot(a):
    return tl.sum(a, 0)

@triton.jit
def sum(a):
    return tl.dot(a, a) + tl.sum(a, 0)

hash_callees_first(dot)
assert dot.hash and sum.hash
"""


def hashes(first: str = "") -> list[str]:
    """Of all kernels, in a new process in which something else happens first."""
    command = [sys.executable, "-c", PRINTED.format(first=first)]
    done = subprocess.run(command, env=compiling_environment(), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_hashes_do_not_depend_on_what_was_hashed_before() -> None:
    found = hashes()
    assert len(found) > 100
    assert not any(line.endswith(" None") for line in found)
    assert hashes(SOME_FIRST) == found


def test_a_function_may_be_named_like_an_attribute_in_another(tmp_path: Path) -> None:
    script = tmp_path / "named.py"
    script.write_text(NAMED_LIKE_ATTRIBUTES)
    subprocess.run([sys.executable, script], env=compiling_environment(), check=True)
