"""Whole models with fp8 weights and an fp8 KV cache: near the plain ones, smaller, and really in fp8."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from tests.support.tiny_models import FAMILIES, LATENT, RECURRENT, SPARSE, tiny_model
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.models.layer_groups import LayerGroups
from thothy_ai.engine.weights.loader import LoadedModel
from thothy_ai.kernels.fp8 import FP8

CPU = torch.device("cpu")


def load(folder: Path, weights: str = "auto") -> LoadedModel:
    return load_model(folder, device=CPU, dtype=torch.float32, weights=weights)


def text(length: int) -> list[int]:
    return torch.randint(3, 131, (length,), generator=torch.Generator().manual_seed(1)).tolist()


def log_probabilities(loaded: LoadedModel, tokens: list[int], kv_dtype: torch.dtype | None = None) -> Tensor:
    """[T, vocab], over a prefill, a chunk and a few decode steps."""
    run = PagedRun(loaded.model, 1, len(tokens), kv_dtype=kv_dtype)
    parts = [tokens[:40], tokens[40:75], *([token] for token in tokens[75:])]
    return torch.cat([run.step({0: part})[0] for part in parts]).double().log_softmax(-1)


def perplexity(log_probabilities: Tensor, tokens: list[int]) -> float:
    return float(log_probabilities[:-1].gather(1, torch.tensor(tokens[1:])[:, None]).mean().neg().exp())


@pytest.mark.parametrize(
    ("family", "weights", "kv_dtype"),
    [
        (family, *types)
        for family in FAMILIES
        for types in [("fp8", None), ("auto", FP8), ("fp8", FP8)]
        if types[1] is None or family not in LATENT
    ],
)
def test_perplexity_barely_moves(family: str, weights: str, kv_dtype: torch.dtype | None, tmp_path: Path) -> None:
    folder, tokens = tiny_model(family, tmp_path, initializer_range=0.08), text(80)
    plain = log_probabilities(load(folder), tokens)
    fp8 = log_probabilities(load(folder, weights), tokens, kv_dtype)
    apart = (fp8 - plain).norm() / (plain - plain.mean(-1, keepdim=True)).norm()
    most = 0.1 if family in (*SPARSE, *LATENT) else 0.07  # random weights forgive little, and rounding may lead to
    if weights == "fp8":  # other experts; states remember both
        most = 0.25 if family in RECURRENT else 0.2
    assert 1e-3 < float(apart) < most
    assert perplexity(fp8, tokens) == pytest.approx(perplexity(plain, tokens), rel=0.03)


def test_fp8_weights_take_a_quarter_of_float32(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, tie_word_embeddings=True)
    plain, fp8 = load(folder), load(folder, "fp8")
    config = plain.config
    heads = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    outputs = heads + config.hidden_size + 2 * config.intermediate_size + config.hidden_size
    weights = (
        heads * config.hidden_size
        + config.num_heads * config.head_dim * config.hidden_size
        + 3 * config.intermediate_size * config.hidden_size
    )
    saved = plain.model.num_bytes - fp8.model.num_bytes
    assert saved == config.num_layers * (3 * weights - 4 * outputs)  # three bytes per weight, less the scales


def test_blocks_of_an_fp8_cache_are_counted_with_their_scales(tmp_path: Path) -> None:
    config = load(tiny_model("llama", tmp_path)).config
    cache = KVCache.allocate(config, 3, 16, FP8, CPU)
    held = sum(tensor.nbytes for layer in cache.layers for tensor in layer[:4])
    assert held == 3 * KVCache.bytes_per_block(LayerGroups.single(config.kept), 16, FP8)


def test_unknown_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="int3"):
        load(tiny_model("llama", tmp_path), "int3")
