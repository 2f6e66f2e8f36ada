"""What requests may ask for, on a GPU: transformers' own tokens and log-probabilities in fp32, the CPU's draws."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.support.asked import Asked
from tests.support.constrained import MAX_TOKENS, VOCAB, run
from tests.support.loading import load_model
from tests.support.oracle import ROOMY, options, random_prompts
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api import LogitBias, SamplingParams
from thothy_ai.engine.api.core import CoreRequest

pytestmark = pytest.mark.gpu
AXES = ("preempted", "chunked", "overlap", "prefix_cache", "graphs")
DRAWS = [
    SamplingParams(temperature=0.9, frequency_penalty=0.8, seed=1),
    SamplingParams(temperature=1.1, top_p=0.9, presence_penalty=1.5, repetition_penalty=1.2, seed=2),
    SamplingParams(temperature=1.0, top_k=20, logit_bias=(LogitBias(3, 4.0), LogitBias(9, -100.0)), seed=3),
    SamplingParams(temperature=1.0, min_p=0.02, frequency_penalty=-0.5, seed=4),
    SamplingParams(temperature=0.9, seed=5),
    SamplingParams(frequency_penalty=0.5),
    SamplingParams(temperature=0.8, top_p=0.95, stop_token_ids=tuple(range(60)), min_tokens=9, seed=6),
    SamplingParams(),
]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    torch.backends.cuda.matmul.allow_tf32 = False
    return Asked.of("qwen3", tmp_path_factory.mktemp("asked"), torch.device("cuda", 0))


@pytest.mark.parametrize(AXES, list(itertools.product([False, True], repeat=len(AXES))))
def test_what_requests_ask_for_is_as_in_transformers(
    asked: Asked, *, preempted: bool, chunked: bool, overlap: bool, prefix_cache: bool, graphs: bool
) -> None:
    stats = asked.check(
        options(preempted=preempted, chunked=chunked, overlap=overlap, prefix_cache=prefix_cache, graphs=graphs)
    )
    assert (stats.scheduler.preemptions > 0) == preempted


@pytest.mark.parametrize(("overlap", "graphs"), list(itertools.product([False, True], repeat=2)))
def test_draws_by_changed_scores_are_those_of_the_cpu(tmp_path: Path, *, overlap: bool, graphs: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    folder = tiny_model("qwen3", tmp_path)
    cpu, gpu = (load_model(folder, device=torch.device(name), dtype=torch.float32) for name in ("cpu", "cuda:0"))
    requests = [
        CoreRequest(str(place), prompt, replace(sampling, max_tokens=MAX_TOKENS, ignore_eos=True))
        for place, (prompt, sampling) in enumerate(zip(random_prompts(VOCAB), DRAWS, strict=True))
    ]
    together = run(gpu, requests, replace(ROOMY, overlap=overlap, graphs=graphs))
    assert together == {each.id: run(cpu, [each], ROOMY)[each.id] for each in requests}
