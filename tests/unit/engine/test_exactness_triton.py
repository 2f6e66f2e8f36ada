"""The whole engine over the Triton kernels, interpreted: transformers' own tokens again.

What only a GPU adds, pinned memory, streams and graphs, is tests/gpu's.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.budget_oracle import budget_oracle, check
from tests.support.oracle import options, tiny_oracle
from tests.support.sweep import spread
from tests.support.tiny_models import GEMMA4_EXPERTS, GEMMA4_SMALL
from thothy_ai.engine.execution import sampler
from thothy_ai.engine.weights import assemble
from thothy_ai.kernels.triton.operations import TritonOperations

SOME = slice(3, 7)  # prompts of 5 tokens, and of 21, 24 and 30 that begin alike


FAMILIES = [
    "qwen3", "gemma2", "gemma3_text", "phi3", "smollm3", "olmo2", "glm4", "cohere", "qwen3_moe", "gpt_oss",
    "qwen3_next", "qwen3_5_moe_text", "granitemoehybrid", "lfm2", "falcon_h1", "nemotron_h", "llama4_text",
    "deepseek_v2", "glm4_moe_lite",
]  # fmt: skip


OVERRIDES = {
    "mistral": {"sliding_window": 9},
    "gemma4_text": GEMMA4_EXPERTS,
    "gemma4_text, small": GEMMA4_SMALL,
}


@pytest.mark.parametrize(("family", "chunked"), spread([*FAMILIES, *OVERRIDES], [False, True]))
@pytest.mark.usefixtures("quick_interpreter")
def test_greedy_tokens_equal_transformers(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, chunked: bool
) -> None:
    for module in (sampler, assemble):
        monkeypatch.setattr(module, "operations_for", lambda _, flex=False: TritonOperations())
    overrides: dict[str, Any] = OVERRIDES.get(family, {})
    oracle = tiny_oracle(family.partition(",")[0], tmp_path, torch.device("cpu"), new_tokens=4, **overrides)
    oracle = replace(oracle, prompts=oracle.prompts[SOME], expected=oracle.expected[SOME])
    stats = oracle.check(options(preempted=False, chunked=chunked, overlap=True, prefix_cache=True))
    assert stats.core.cached_tokens


@pytest.mark.usefixtures("quick_interpreter")
def test_queries_see_the_tokens_that_a_budget_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sampler, assemble):
        monkeypatch.setattr(module, "operations_for", lambda _, flex=False: TritonOperations())
    oracle = budget_oracle("llama", tmp_path, torch.device("cpu"))
    two = slice(1, 3)  # 33 tokens with a budget of 16, and 61 without
    expected = tuple(tokens[:6] for tokens in oracle.expected[two])
    oracle = replace(oracle, prompts=oracle.prompts[two], expected=expected, budgets=oracle.budgets[two])
    check(oracle, preempted=False, chunked=False, overlap=True, graphs=False)
