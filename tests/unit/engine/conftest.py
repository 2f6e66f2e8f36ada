"""The small tokenizer, and its vocabulary."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from tests.support.tiny_tokenizer import make_tokenizer
from thothy_ai.engine.text.token_bytes import TokenBytes, token_bytes


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Small tensors: threads would only wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """The collector, which traverses all that other tests left, does not count as work."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer()


@pytest.fixture(scope="session")
def vocabulary(tokenizer: PreTrainedTokenizerFast) -> TokenBytes:
    return token_bytes(tokenizer.backend_tokenizer)
