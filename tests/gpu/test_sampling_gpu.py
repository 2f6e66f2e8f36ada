"""Grammars, forced tokens and draws on a GPU in fp32, against the CPU's references."""

from __future__ import annotations

import importlib.util
import itertools
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
from tests.support.drafted import check_drafts
from tests.support.loading import load_model
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.weights.loader import LoadedModel

pytestmark = pytest.mark.gpu
AXES = ("overlap", "graphs")
MATRIX = list(itertools.product([False, True], repeat=2))
Pair = tuple[LoadedModel, LoadedModel]


def on_both(folder: Path) -> Pair:
    torch.backends.cuda.matmul.allow_tf32 = False
    cpu, gpu = (load_model(folder, device=torch.device(name), dtype=torch.float32) for name in ("cpu", "cuda:0"))
    return cpu, gpu


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return on_both(tiny_model("qwen3", tmp_path_factory.mktemp("constrained")))


@pytest.mark.parametrize(AXES, MATRIX)
def test_constrained_requests_beside_free_ones(models: Pair, *, overlap: bool, graphs: bool) -> None:
    check_constrained(*models, overlap=overlap, graphs=graphs)


@pytest.mark.parametrize(AXES, MATRIX)
def test_draws_are_those_of_the_cpu_and_do_not_depend_on_batch_mates(
    models: Pair, *, overlap: bool, graphs: bool
) -> None:
    check_draws(*models, overlap=overlap, graphs=graphs)


@pytest.mark.parametrize("repeats", [1, 6])  # long prompts: a draft's members read them as a group
@pytest.mark.parametrize(AXES, MATRIX)
def test_drafts_change_no_token(models: Pair, repeats: int, *, overlap: bool, graphs: bool) -> None:
    check_drafts(*models, repeats, overlap=overlap, graphs=graphs)


@pytest.mark.parametrize(AXES, MATRIX)
def test_drafts_beside_prompts(models: Pair, *, overlap: bool, graphs: bool) -> None:
    """Prompts are computed in chunks, with free rows beside them."""
    check_drafts(*models, 6, overlap=overlap, graphs=graphs, max_rows=64, token_budget=40)


@pytest.mark.skipif(importlib.util.find_spec("llguidance") is None, reason="llguidance is not installed here")
@pytest.mark.parametrize(AXES, MATRIX)
def test_a_schema_beside_a_free_request(tmp_path: Path, *, overlap: bool, graphs: bool) -> None:
    check_schema(
        *on_both(tiny_model("llama", tmp_path, vocab_size=300)), schema_grammar, overlap=overlap, graphs=graphs
    )


@pytest.mark.parametrize(AXES, MATRIX)
def test_a_broken_row_ends_alone(tmp_path: Path, *, overlap: bool, graphs: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    loaded = load_model(tiny_model("llama", tmp_path), device=torch.device("cuda", 0), dtype=torch.float32)
    check_broken_row(loaded, overlap=overlap, graphs=graphs)


@pytest.mark.parametrize(AXES, MATRIX)
def test_a_broken_token_does_not_stay_in_the_prefix_cache(tmp_path: Path, *, overlap: bool, graphs: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    loaded = load_model(tiny_model("llama", tmp_path), device=torch.device("cuda", 0), dtype=torch.float32)
    check_broken_prefix(loaded, overlap=overlap, graphs=graphs)
