"""Which sums over ranks are left to norms."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.loading import load_model
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.layers.blocks import PreNormLayer
from thothy_ai.engine.models.layers.experts import SparseLayer
from thothy_ai.engine.models.layers.parallel import ReducedExperts, ReducedLinear
from thothy_ai.engine.models.ranks import PlannedRanks

RANKS = PlannedRanks(2)


def divided(family: str, folder: Path) -> Decoder:
    model = load_model(tiny_model(family, folder), device=torch.device("cpu"), dtype=torch.float32, ranks=RANKS).model
    decoder = model.decoder
    assert isinstance(decoder, Decoder)
    return decoder


def reduced(part: object) -> bool:
    """Whether a part sums over the ranks by itself."""
    return isinstance(part, ReducedLinear | ReducedExperts)


def test_all_sums_of_pre_norm_layers_but_that_of_the_embedding(tmp_path: Path) -> None:
    decoder = divided("llama", tmp_path)
    for index, layer in enumerate(decoder.layers):
        assert isinstance(layer, PreNormLayer)
        assert layer.attention_norm.ranks is (RANKS if index else None)
        assert layer.mlp_norm.ranks is RANKS
        assert not reduced(layer.attention.output)  # type: ignore[attr-defined]
        assert not reduced(layer.mlp.down)
    assert decoder.norm.ranks is RANKS


@pytest.mark.parametrize("family", ["qwen3_moe", "glm4_moe", "deepseek_v2"])
def test_sums_of_experts_and_shared_experts(family: str, tmp_path: Path) -> None:
    """A block adds up the summands of both, and a norm their sum."""
    decoder = divided(family, tmp_path)
    for index, layer in enumerate(decoder.layers):
        assert isinstance(layer, SparseLayer)
        assert layer.attention_norm.ranks is (RANKS if index else None)
        assert layer.feed_forward.norm.ranks is RANKS
        assert not reduced(getattr(layer.feed_forward, "experts", None))
    assert decoder.norm.ranks is RANKS


@pytest.mark.parametrize("family", ["gemma2", "olmo2", "cohere"])
def test_no_sums_where_something_else_follows(family: str, tmp_path: Path) -> None:
    decoder = divided(family, tmp_path)
    assert all(reduced(layer.attention.output) for layer in decoder.layers)  # type: ignore[attr-defined]
    assert getattr(decoder.norm, "ranks", None) is None
