"""Triton kernels run on the GPU where there is one, and through Triton's interpreter on the CPU otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

if not torch.cuda.is_available():  # before anything imports triton: its functions are made compiled or interpreted
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where kernels run."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


@pytest.fixture(scope="session")
def quick_interpreter() -> Iterator[None]:
    """Where kernels are interpreted, they are so without repeated work."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        if not torch.cuda.is_available():
            from tests.support.interpreter import quicken  # it imports triton

            quicken(monkeypatch)
        yield
