"""Grammars, forced tokens and draws through the whole engine, against single steps; tests/gpu has the same on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.byte_tokenizer import schema_grammar
from tests.support.constrained import (
    check_broken_prefix,
    check_broken_row,
    check_constrained,
    check_draws,
    check_schema,
)
from tests.support.oracle import TINY_POOL
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.weights.loader import LoadedModel, load_model


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tiny_model("qwen3", tmp_path_factory.mktemp("constrained"))
    return load_model(folder, device=torch.device("cpu"), dtype=torch.float32)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("graphs", [False, True])  # planned for; a CPU has none
@pytest.mark.parametrize("sizes", [{}, {"kv_tokens": TINY_POOL}, {"token_budget": 7}], ids=str)
def test_constrained_requests_beside_free_ones(
    loaded: LoadedModel, sizes: dict[str, int], *, overlap: bool, graphs: bool
) -> None:
    check_constrained(loaded, loaded, overlap=overlap, graphs=graphs, **sizes)


@pytest.mark.parametrize("overlap", [False, True])
def test_draws_do_not_depend_on_batch_mates(loaded: LoadedModel, *, overlap: bool) -> None:
    check_draws(loaded, loaded, overlap=overlap)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("sizes", [{}, {"kv_tokens": TINY_POOL}, {"token_budget": 7}, {"graphs": True}], ids=str)
def test_a_schema_beside_a_free_request(tmp_path: Path, sizes: dict[str, int], *, overlap: bool) -> None:
    folder = tiny_model("llama", tmp_path, vocab_size=300)
    loaded = load_model(folder, device=torch.device("cpu"), dtype=torch.float32)
    check_schema(loaded, loaded, schema_grammar, overlap=overlap, **sizes)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_broken_row_ends_alone(tmp_path: Path, *, overlap: bool) -> None:
    folder = tiny_model("llama", tmp_path)
    check_broken_row(load_model(folder, device=torch.device("cpu"), dtype=torch.float32), overlap=overlap)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_broken_token_does_not_stay_in_the_prefix_cache(tmp_path: Path, *, overlap: bool) -> None:
    folder = tiny_model("llama", tmp_path)
    check_broken_prefix(load_model(folder, device=torch.device("cpu"), dtype=torch.float32), overlap=overlap)
