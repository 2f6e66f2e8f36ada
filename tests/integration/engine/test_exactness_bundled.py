"""The exactness matrix's corners on the bundled model, over real text."""

from __future__ import annotations

import pytest
import torch

from tests.support.loading import load_model
from tests.support.oracle import NEW_TOKENS, Oracle, Tokens, generate, options, prompts_from
from thothy_ai.demo.sources import load_sources
from thothy_ai.engine.checkpoint.bundled import bundled_model_path
from thothy_ai.engine.text.model_text import LocalText
from thothy_ai.engine.weights.gguf.convert import converted_folder
from thothy_ai.engine.weights.loader import default_cache_dir

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    folder = converted_folder(bundled_model_path(), torch.float32, default_cache_dir())
    read = LocalText()
    loaded = load_model(folder, device=CPU, dtype=torch.float32, text=read)
    assert read.loaded is not None
    text = iter(read.loaded.encode(" ".join(source.text for source in load_sources())))

    def draw(count: int) -> Tokens:
        return tuple(next(text) for _ in range(count))

    prompts = prompts_from(draw)
    return Oracle(loaded, prompts, generate(folder, prompts, NEW_TOKENS, CPU))


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("strained", [False, True], ids=["roomy", "preempted and chunked"])
def test_greedy_tokens_equal_transformers(oracle: Oracle, *, strained: bool, overlap: bool) -> None:
    stats = oracle.check(
        options(preempted=strained, chunked=strained, overlap=overlap, prefix_cache=True),
    )
    assert (stats.scheduler.preemptions > 0) == strained
    assert stats.core.cached_tokens > 0
