"""Recurrent layers on a GPU in bfloat16, against plain torch in float32, and states that siblings share.

The kernels in float32 are tested by tests/unit/kernels, which use the GPU where there is one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.support.layer_checks import normal
from tests.support.loading import load_model
from tests.support.oracle import ROOMY, Oracle, generate
from tests.support.tiny_models import RECURRENT, tiny_model
from tests.unit.kernels.test_states import Members
from thothy_ai.kernels.reference import states as reference
from thothy_ai.kernels.states import Convolution, DeltaGates
from thothy_ai.kernels.triton import states as triton

pytestmark = pytest.mark.gpu
GPU = torch.device("cuda", 0)
CASES = {
    "decode": Members([*range(300)], [7] * 300, [1] * 300),
    "forced tokens": Members([0, 1, 1, 1, 2], [3, 5, 6, 7, 0], [1] * 5),
    "prompts": Members([0, 1, 2, 3], [64, 0, 31, 0], [1, 1000, 65, 333]),
    "one long prompt": Members([5], [0], [4096]),
    "prompts beside decode": Members([*range(203)], [7] * 200 + [0, 64, 0], [1] * 200 + [333, 100, 1000]),
}
SIZES = [(16, 32, 128, 128), (2, 4, 64, 96)]  # key heads, heads, keys, values


@pytest.mark.parametrize("state", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("key_heads", "heads", "keys", "values"), SIZES)
@pytest.mark.parametrize("name", CASES)
def test_the_gated_delta_rule_in_bfloat16(
    name: str, key_heads: int, heads: int, keys: int, values: int, state: torch.dtype
) -> None:
    members = CASES[name]
    tokens, batch = sum(members.counts), members.batch(GPU)
    mixed = normal(tokens, 2 * key_heads * keys + heads * values).bfloat16().to(GPU)
    learned, forgotten = normal(tokens, 2 * heads, seed=1).bfloat16().to(GPU).split(heads, dim=1)
    gates = DeltaGates(-normal(heads, seed=2).abs().to(GPU), normal(heads, seed=3).to(GPU))
    memory = normal(max(members.rows) + 1, heads, values, keys, seed=4).to(state).to(GPU)
    exact = memory.float().clone()
    got = triton.gated_delta(mixed, learned, forgotten, gates, memory, batch)
    wanted = reference.gated_delta(mixed, learned, forgotten, gates, exact, batch)
    assert (got - wanted).norm() < 1e-2 * wanted.norm()
    assert (memory.float() - exact).norm() < 1e-2 * exact.norm()


@pytest.mark.parametrize("name", CASES)
def test_the_convolution_in_bfloat16(name: str) -> None:
    members, channels = CASES[name], 8192
    batch = members.batch(GPU)
    x = normal(sum(members.counts), channels + 64).bfloat16().to(GPU)[:, 64:]
    convolution = Convolution(normal(channels, 4, seed=1).bfloat16().to(GPU))
    kept = normal(max(members.rows) + 1, 3, channels, seed=2).bfloat16().to(GPU)
    same = kept.clone()
    got, wanted = (each.convolve(x, convolution, at, batch) for each, at in ((triton, kept), (reference, same)))
    torch.testing.assert_close(got, wanted, atol=2e-2, rtol=2e-2)
    assert torch.equal(kept, same)


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("family", RECURRENT)
def test_siblings_begin_with_the_state_at_their_source_s_end(family: str, tmp_path: Path, *, graphs: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    folder = tiny_model(family, tmp_path, max_position_embeddings=512)
    loaded = load_model(folder, device=GPU, dtype=torch.float32)
    draw = torch.Generator().manual_seed(3)
    source = tuple(torch.randint(3, 131, (300,), generator=draw).tolist())
    prompts = tuple(source + tuple(torch.randint(3, 131, (9,), generator=draw).tolist()) for _ in range(6))
    oracle = Oracle(loaded, prompts, generate(folder, prompts, 16, GPU))
    options = replace(ROOMY, kv_tokens=4096, token_budget=128, max_context=400, block_size=16, graphs=graphs)
    stats = oracle.check(options)
    assert stats.core.cached_tokens == 5 * 288
