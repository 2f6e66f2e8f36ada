"""Quantized checkpoints on a GPU: near what their weights stand for, in every type and under graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.checkpoints import SCHEMES, fp8
from tests.support.dequantized import log_probabilities
from tests.support.loading import load_model
from tests.support.oracle import NEW_TOKENS, Oracle, generate, options, random_prompts
from tests.support.published_formats import write_dequantized
from tests.support.quantized_models import quantized_model

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda", 0)
TOKENS = torch.randint(3, 131, (200,), generator=torch.Generator().manual_seed(1)).tolist()
ACTIVATIONS_TOO = ("fp8", "int8")
EXACT = ("GPTQ, groups of 32, asymmetric, act-order, version 2", "AWQ, groups of 32", "GPTQ, 8 bits, groups of 128")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", SCHEMES)
def test_log_probabilities(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Over a prefill of 40 tokens, a chunk of 35 and many decode steps."""
    folder = quantized_model(SCHEMES[name], tmp_path, "qwen2", initializer_range=0.08)
    wanted_folder = write_dequantized(folder, tmp_path / "plain")
    wanted = log_probabilities(load_model(wanted_folder, device=torch.device("cpu"), dtype=torch.float32).model, TOKENS)
    got = log_probabilities(load_model(folder, device=CUDA, dtype=dtype).model, TOKENS)
    assert bool(got.isfinite().all())
    apart = float((got - wanted).norm() / (wanted - wanted.mean(-1, keepdim=True)).norm())
    if any(word in name for word in ACTIVATIONS_TOO):
        assert apart < 0.12
    else:
        assert apart < {torch.bfloat16: 0.04, torch.float16: 0.01, torch.float32: 1e-4}[dtype]


@pytest.mark.parametrize("family", ["llama", "cohere", "phi3", "qwen3_moe"])
def test_blocks_that_layers_fill_or_cut_off(family: str, tmp_path: Path) -> None:
    """Joined, reordered and merged projections; on a CPU quantized activations make as much of a difference."""
    sizes = {"hidden_size": 384, "intermediate_size": 640, "num_attention_heads": 8, "head_dim": 64}
    folder = quantized_model(fp8(), tmp_path, family, **sizes, moe_intermediate_size=128, initializer_range=0.04)
    wanted_folder = write_dequantized(folder, tmp_path / "plain")
    wanted = log_probabilities(load_model(wanted_folder, device=torch.device("cpu"), dtype=torch.float32).model, TOKENS)
    got = log_probabilities(load_model(folder, device=CUDA, dtype=torch.bfloat16).model, TOKENS)
    assert bool(got.isfinite().all())
    assert float((got - wanted).norm() / (wanted - wanted.mean(-1, keepdim=True)).norm()) < 0.15


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("name", EXACT)
def test_greedy_tokens_are_those_of_transformers(name: str, graphs: bool, tmp_path: Path) -> None:
    folder = quantized_model(SCHEMES[name], tmp_path, "qwen2")
    loaded = load_model(folder, device=CUDA, dtype=torch.float32)
    prompts = random_prompts(loaded.config.vocab_size)
    expected = generate(write_dequantized(folder, tmp_path / "plain"), prompts, NEW_TOKENS, CUDA)
    Oracle(loaded, prompts, expected).check(
        options(preempted=False, chunked=True, overlap=True, prefix_cache=True, graphs=graphs)
    )
