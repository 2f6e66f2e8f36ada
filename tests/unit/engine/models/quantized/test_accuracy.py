"""The bundled model with eleven of its thirty layers quantized, rounded to nearest: its perplexity barely moves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks.checkpoints import Scheme, awq, fp8, gptq, write_quantized
from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from thothy_ai.demo.sources import load_sources
from thothy_ai.engine.checkpoint.bundled import bundled_model_path
from thothy_ai.engine.text.model_text import LocalText
from thothy_ai.engine.weights.gguf.convert import converted_folder
from thothy_ai.engine.weights.loader import default_cache_dir

CPU = torch.device("cpu")
QUANTIZED = "layers.1"  # and 10 to 19
OTHERS = [f"model.layers.{index}" for index in (0, *range(2, 10), *range(20, 30))]
SCHEMES: dict[str, tuple[Scheme, float]] = {  # and by how much perplexity may grow
    "fp8 in blocks": (fp8(modules_to_not_convert=OTHERS), 0.1),
    "int4 with zero points": (awq(32, modules_to_not_convert=[f"{name}." for name in OTHERS]), 0.1),
    "int4, act-order": (gptq(4, 64, reordered=True, dynamic={r"-:model\.layers\.([02-9]|2\d)\.": {}}), 0.2),
}
TOKENS = 100


@pytest.fixture(scope="module")
def source() -> Path:
    return converted_folder(bundled_model_path(), torch.float32, default_cache_dir())


@pytest.fixture(scope="module")
def plain(source: Path) -> Tensor:
    return log_probabilities(source)


def log_probabilities(path: Path, weights: str = "auto") -> Tensor:
    """Of each token but the first of a text [T - 1]."""
    text = LocalText()
    loaded = load_model(path, device=CPU, dtype=torch.float32, weights=weights, text=text)
    assert text.loaded is not None
    tokens = text.loaded.encode(load_sources()[0].text)[:TOKENS]
    logits = PagedRun(loaded.model, 1, TOKENS).step({0: tokens})[0]
    return logits[:-1].double().log_softmax(-1).gather(1, torch.tensor(tokens[1:])[:, None]).squeeze(1)


@pytest.mark.parametrize("name", SCHEMES)
def test_perplexity(name: str, source: Path, plain: Tensor, tmp_path: Path) -> None:
    scheme, most = SCHEMES[name]
    got = log_probabilities(write_quantized(source, tmp_path / "quantized", scheme, QUANTIZED))
    growth = float((plain - got).mean().exp()) - 1
    assert 1e-4 < float((got - plain).abs().mean()) < 0.6
    assert growth < most


def test_the_file_s_own_blocks(plain: Tensor) -> None:
    got = log_probabilities(bundled_model_path(), "stored")
    torch.testing.assert_close(got, plain, atol=1e-3, rtol=0)
