"""A small model and where its engine listens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tiny_models import tiny_model
from tests.support.tiny_tokenizer import make_tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_model("llama", tmp_path_factory.mktemp("model"), vocab_size=700)
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"unix://{tmp_path}/e.sock"
