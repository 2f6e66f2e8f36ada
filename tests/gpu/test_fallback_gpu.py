"""Decoders that run through transformers, on a GPU: token for token in fp32, close in bf16, with graphs and without."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from tests.support.fallback_models import fallback_model, fallback_oracle
from tests.support.loading import load_model
from tests.support.oracle import Oracle, options
from tests.support.paged_run import PagedRun
from tests.support.tiny_models import reference_model
from thothy_ai.engine.api.core import OnEvents
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel

pytestmark = pytest.mark.gpu
GPU = torch.device("cuda", 0)
KINDS = ("gpt_neox", "exaone4", "olmoe", "minicpm3")


@pytest.fixture(scope="module", params=KINDS)
def oracle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    torch.backends.cuda.matmul.allow_tf32 = False
    return fallback_oracle(request.param, tmp_path_factory.mktemp(request.param), GPU)


@pytest.mark.parametrize(("pressed", "ahead", "graphs"), list(itertools.product([False, True], repeat=3)))
def test_greedy_tokens_equal_transformers(oracle: Oracle, *, pressed: bool, ahead: bool, graphs: bool) -> None:
    """`pressed`: preempted and chunked; `ahead`: with overlap and the prefix cache."""
    stats = oracle.check(
        options(preempted=pressed, chunked=pressed, overlap=ahead, prefix_cache=ahead, graphs=graphs),
    )
    assert (stats.scheduler.preemptions > 0) == pressed
    assert (stats.core.cached_tokens > 0) == ahead


def test_decode_steps_are_replayed_if_a_trial_capture_was(oracle: Oracle) -> None:
    cores: list[EngineCore] = []

    def build(loaded: LoadedModel, options: EngineOptions, on_events: OnEvents) -> EngineCore:
        cores.append(build_core(loaded, options, on_events))
        return cores[-1]

    oracle.check(options(preempted=False, chunked=False, overlap=True, prefix_cache=False, graphs=True), build=build)
    assert (cores[0]._runner.replays > 0) == oracle.loaded.model.captures


@pytest.mark.parametrize("kind", KINDS)
def test_logits_in_bfloat16(kind: str, tmp_path: Path) -> None:
    folder = fallback_model(kind, tmp_path)
    tokens = torch.randint(3, 131, (40,), generator=torch.Generator().manual_seed(5)).tolist()
    with torch.no_grad():
        expected = reference_model(folder)(torch.tensor([tokens])).logits[0].log_softmax(-1)
        rounded = reference_model(folder, torch.bfloat16).to(GPU)(torch.tensor([tokens], device=GPU)).logits[0]
    model = load_model(folder, device=GPU, dtype=torch.bfloat16).model
    run = PagedRun(model, sequences=1, longest=64)
    parts = [run.step({0: tokens[:30]})[0], *(run.step({0: [token]})[0] for token in tokens[30:])]
    ours = torch.cat(parts).float().cpu().log_softmax(-1)
    theirs = rounded.float().cpu().log_softmax(-1)  # of transformers in the same type, which rounds as often
    assert (ours - expected).abs().mean() <= 1.3 * (theirs - expected).abs().mean() + 0.02
