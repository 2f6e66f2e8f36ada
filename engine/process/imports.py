"""Imports transformers into the frontend without torch.

The frontend reads only configurations and tokenizers. It does not need what transformers imports of torch (compilers,
distributed tensors, kernels from a hub), which takes seconds (`benchmarks/RESULTS.md`, start-up).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_UNADVISED = "TRANSFORMERS_NO_ADVISORY_WARNINGS"


@contextmanager
def transformers_without_torch() -> Iterator[None]:
    """Import the parts of transformers that read configurations and tokenizers. These, other parts imported within the
    block, and everything that they import later, find no torch in this process.

    Has no effect if torch was imported before. No other thread may import torch within the block.
    """
    if "torch" in sys.modules:
        yield
        return
    advised = os.environ.get(_UNADVISED)
    os.environ[_UNADVISED] = "1"  # no advice about the missing torch
    sys.modules["torch"] = None  # type: ignore[assignment]  # how Python marks a module that must not be imported
    try:
        from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerFast  # noqa: F401, PLC0415  slow

        yield
    finally:
        sys.modules.pop("torch", None)
        del os.environ[_UNADVISED]
        if advised is not None:
            os.environ[_UNADVISED] = advised
