"""A small model in a folder, and a limit on the memory that loading corrupt files takes."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.corruption import TINY
from tests.support.tiny_models import tiny_model
from tests.support.tiny_tokenizer import make_tokenizer

MORE_MEMORY = 400 << 20  # bytes that a test's loads may take on top


@pytest.fixture(autouse=True)
def _in_little_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < MORE_MEMORY


@pytest.fixture(scope="module")
def hf_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_model("llama", tmp_path_factory.mktemp("hf"), vocab_size=700, **TINY)
    make_tokenizer().save_pretrained(folder)
    return folder
