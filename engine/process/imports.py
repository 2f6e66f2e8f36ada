"""The frontend's imports of transformers, which leave torch out, and with it what transformers imports of torch.

It only reads configurations and tokenizers, and needs none of that: compilers, distributed tensors, kernels from a hub,
which take seconds to import (`benchmarks/RESULTS.md`, start-up).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_UNADVISED = "TRANSFORMERS_NO_ADVISORY_WARNINGS"


@contextmanager
def transformers_without_torch() -> Iterator[None]:
    """Import what reads configurations and tokenizers. It, what is imported of transformers meanwhile, and whatever
    these import later, finds no torch in this process.

    Too late once torch is imported: nothing is hidden then. No other thread may import torch meanwhile.
    """
    if "torch" in sys.modules:
        yield
        return
    advised = os.environ.get(_UNADVISED)
    os.environ[_UNADVISED] = "1"  # that it found no torch
    sys.modules["torch"] = None  # type: ignore[assignment]  # how Python marks a module that must not be imported
    try:
        from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerFast  # noqa: F401, PLC0415  slow

        yield
    finally:
        sys.modules.pop("torch", None)
        del os.environ[_UNADVISED]
        if advised is not None:
            os.environ[_UNADVISED] = advised
