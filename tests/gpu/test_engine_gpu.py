"""What only a GPU shows: bf16 near transformers, draws that ignore batch-mates, memory planned and kept."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.support.engine_driver import EngineDriver
from tests.support.loading import load_model
from tests.support.oracle import ROOMY, random_prompts
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.errors import OutOfMemoryError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel

pytestmark = pytest.mark.gpu
GPU = torch.device("cuda", 0)
NEAR = 0.15  # nats; bf16 keeps 8 bits, and the tiny models' logits have a deviation near 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model("qwen3", tmp_path_factory.mktemp("qwen3"))


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedModel:
    return load_model(folder, device=GPU, dtype=torch.bfloat16)


def run(loaded: LoadedModel, requests: list[CoreRequest], options: EngineOptions = ROOMY) -> dict[str, list[int]]:
    with EngineDriver(lambda on_events: build_core(loaded, options, on_events)) as driver:
        return driver.run(requests).tokens


def test_bf16_tokens_are_among_the_best_by_transformers(folder: Path, loaded: LoadedModel) -> None:
    prompts = random_prompts(loaded.config.vocab_size)
    sampling = SamplingParams(max_tokens=20, ignore_eos=True)
    tokens = run(loaded, [CoreRequest(str(i), prompt, sampling) for i, prompt in enumerate(prompts)])
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval().to(GPU)
    for index, prompt in enumerate(prompts):
        output = tokens[str(index)]
        ids = torch.tensor([[*prompt, *output]], device=GPU)
        with torch.inference_mode():
            scores = reference(ids).logits[0, len(prompt) - 1 : -1].float().log_softmax(dim=-1)
        chosen = scores.gather(1, torch.tensor(output, device=GPU)[:, None]).squeeze(1)
        assert (scores.max(dim=-1).values - chosen).max() < NEAR


@pytest.mark.parametrize("overlap", [False, True])
def test_a_seeded_draw_does_not_depend_on_its_batch(loaded: LoadedModel, *, overlap: bool) -> None:
    options = EngineOptions(url="", block_size=16, kv_tokens=4096, max_context=60, max_rows=8, overlap=overlap)
    sampling = SamplingParams(max_tokens=16, temperature=0.9, top_p=0.95, seed=11, ignore_eos=True)
    prompts = random_prompts(loaded.config.vocab_size)
    alone = run(loaded, [CoreRequest("x", prompts[0], sampling)], options)["x"]
    others = [
        CoreRequest(str(i), prompt, SamplingParams(max_tokens=9, temperature=1.0)) for i, prompt in enumerate(prompts)
    ]
    assert run(loaded, [*others, CoreRequest("x", prompts[0], sampling)], options)["x"] == alone


def test_a_pool_that_does_not_fit_is_refused_with_the_numbers(loaded: LoadedModel) -> None:
    with pytest.raises(OutOfMemoryError, match=r"of \d+\.\d GB are free"):
        build_core(loaded, EngineOptions(url="", memory_utilization=0.0001), lambda _: None)


def test_the_pool_takes_what_is_planned_and_a_drain_takes_no_more(loaded: LoadedModel) -> None:
    gc.collect()  # of what earlier tests of this process left
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    others = torch.cuda.memory_allocated() - loaded.model.num_bytes
    free, total = torch.cuda.mem_get_info()
    utilization = min(1.0, 1 - free / total + 0.1)  # others may use the GPU
    options = EngineOptions(url="", memory_utilization=utilization, max_rows=8)
    with EngineDriver(lambda on_events: build_core(loaded, options, on_events)) as driver:
        sampling = SamplingParams(max_tokens=16, ignore_eos=True)
        prompts = random_prompts(loaded.config.vocab_size)
        driver.run(CoreRequest(str(i), prompt, sampling) for i, prompt in enumerate(prompts))
        stats = driver.core.stats()
    assert 0 < stats.memory.planned_bytes < utilization * stats.memory.total_bytes
    assert torch.cuda.max_memory_allocated() - others < 1.1 * stats.memory.planned_bytes
