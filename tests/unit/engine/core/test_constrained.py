"""Grammars, forced tokens and draws through the whole engine, against single steps; tests/gpu has the same on a GPU."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.byte_tokenizer import schema_grammar
from tests.support.constrained import (
    GREEDY,
    check_broken_prefix,
    check_broken_row,
    check_constrained,
    check_draws,
    check_schema,
    request,
    run,
)
from tests.support.engine_driver import EngineDriver
from tests.support.loading import load_model
from tests.support.oracle import ROOMY
from tests.support.patience import PATIENCE
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api import FinishReason
from thothy_ai.engine.grammar import batch as grammar_batch
from thothy_ai.engine.grammar.batch import Filling
from thothy_ai.engine.grammar.json_schema import JsonGrammar
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tiny_model("qwen3", tmp_path_factory.mktemp("constrained"))
    return load_model(folder, device=torch.device("cpu"), dtype=torch.float32)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("graphs", [False, True])  # planned for; a CPU has none
@pytest.mark.parametrize("sizes", [{}, {"kv_tokens": 64}, {"token_budget": 7}], ids=str)
def test_constrained_requests_beside_free_ones(
    loaded: LoadedModel, sizes: dict[str, int], *, overlap: bool, graphs: bool
) -> None:
    check_constrained(loaded, loaded, overlap=overlap, graphs=graphs, **sizes)


@pytest.mark.parametrize("overlap", [False, True])
def test_draws_do_not_depend_on_batch_mates(loaded: LoadedModel, *, overlap: bool) -> None:
    check_draws(loaded, loaded, overlap=overlap)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("sizes", [{}, {"kv_tokens": 64}, {"token_budget": 7}, {"graphs": True}], ids=str)
def test_a_schema_beside_a_free_request(tmp_path: Path, sizes: dict[str, int], *, overlap: bool) -> None:
    folder = tiny_model("llama", tmp_path, vocab_size=300)
    loaded = load_model(folder, device=torch.device("cpu"), dtype=torch.float32)
    check_schema(loaded, loaded, schema_grammar, overlap=overlap, **sizes)


@pytest.mark.parametrize("overlap", [False, True])
def test_masks_are_sent_once_they_are_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, overlap: bool) -> None:
    """No mask is filled before the core waits for it. Meanwhile, requests on the same lexer are added and ended."""
    folder = tiny_model("llama", tmp_path, vocab_size=300)
    loaded = load_model(folder, device=torch.device("cpu"), dtype=torch.float32)
    first = schema_grammar()
    assert isinstance(first, JsonGrammar)
    a, b, c = (JsonGrammar(first._lexers, first._eos) for _ in range(3))
    whole = run(loaded, [request("a", [5, 6], GREEDY, first)], ROOMY)["a"]
    waited, wait, compute = threading.Semaphore(0), Filling.wait, grammar_batch._compute

    def compute_late(*work: Any) -> None:
        assert waited.acquire(timeout=PATIENCE)
        compute(*work)

    def let_fill(filling: Filling) -> list[int]:
        if filling._running is not None:
            if driver.core.stats().core.steps == 1:  # on the core's thread; taken when the next step is planned
                driver.submit(request("c", [5, 6], GREEDY, c))
                driver.core.abort("b")
            waited.release()
        rows = wait(filling)
        assert filling._running is None or filling._running.done()
        return rows

    monkeypatch.setattr(grammar_batch, "_compute", compute_late)
    monkeypatch.setattr(Filling, "wait", let_fill)
    with EngineDriver(lambda events: build_core(loaded, replace(ROOMY, overlap=overlap), events)) as driver:
        driver.run([request("a", [5, 6], GREEDY, a), request("b", [5, 6], GREEDY, b)])
        while "c" not in driver.collected.finished:
            driver.gather()
    assert driver.collected.tokens["a"] == driver.collected.tokens["c"] == whole
    assert driver.collected.finished["b"].reason is FinishReason.ABORTED


@pytest.mark.parametrize("overlap", [False, True])
def test_a_broken_row_ends_alone(tmp_path: Path, *, overlap: bool) -> None:
    folder = tiny_model("llama", tmp_path)
    check_broken_row(load_model(folder, device=torch.device("cpu"), dtype=torch.float32), overlap=overlap)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_broken_token_does_not_stay_in_the_prefix_cache(tmp_path: Path, *, overlap: bool) -> None:
    folder = tiny_model("llama", tmp_path)
    check_broken_prefix(load_model(folder, device=torch.device("cpu"), dtype=torch.float32), overlap=overlap)
