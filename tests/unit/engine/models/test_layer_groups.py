"""Groups of layers: what published shapes are divided into, and what their sequences then take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tiny_models import tiny_model
from tests.support.windows import HALVES
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.models.layer_groups import LayerGroups
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.kernels.fp8 import FP8
from thothy_ai.kernels.paged import KVHeads
from thothy_ai.kernels.reference.attention import gather_blocks
from thothy_ai.kernels.reference.rope import write_kv

CONTEXT, BLOCK = 32_768, 32


def every(period: int, layers: int, window: int, full: KVHeads, narrow: KVHeads) -> tuple[list[KVHeads], list[int]]:
    """Heads and what is seen, by layer: each `period`-th sees everything."""
    whole = [index % period == period - 1 for index in range(layers)]
    return [full if each else narrow for each in whole], [CONTEXT if each else window for each in whole]


def per_block(groups: LayerGroups) -> int:
    return sum(room.numbers for room in groups.rooms().values())


@pytest.mark.parametrize(
    ("model", "groups", "at_2000", "at_4000"),
    [
        (every(2, 24, 128, KVHeads(8, 64), KVHeads(8, 64)), 2, 1.8, 1.9),  # gpt-oss-20b
        (every(6, 62, 1024, KVHeads(16, 128), KVHeads(16, 128)), 13, 1.59, 2.5),  # gemma-3-27b
        (every(6, 60, 1024, KVHeads(4, 512), KVHeads(16, 256)), 11, 1.7, 3.0),  # gemma-4-31b
        (every(4, 32, 4096, KVHeads(8, 128), KVHeads(8, 128)), 4, 1.0, 1.0),  # command-r7b
    ],
)
def test_as_many_more_sequences_fit(
    model: tuple[list[KVHeads], list[int]], groups: int, at_2000: float, at_4000: float
) -> None:
    made, alone = LayerGroups.of(*model, CONTEXT), LayerGroups.single(model[0])
    assert len(made.windows) == groups
    config = EngineConfig(BLOCK, 10**6, 8, 512, CONTEXT, windows=made.windows)
    for length, gain in ((2000, at_2000), (4000, at_4000)):
        before, after = -(-length // BLOCK) * per_block(alone), config.most_blocks(length, 1) * per_block(made)
        assert gain <= before / after < gain + 0.1


HEADS = st.sampled_from([KVHeads(2, 64), KVHeads(4, 32), KVHeads(1, 64), KVHeads(3, 32), None])


@given(layers=st.lists(st.tuples(HEADS, st.sampled_from([CONTEXT, CONTEXT, 100, 100, 300])), min_size=1, max_size=30))
def test_no_two_layers_lie_in_one_place(layers: list[tuple[KVHeads | None, int]]) -> None:
    kept, seen = zip(*layers, strict=True)
    if not any(kept):
        return
    made, taken = LayerGroups.of(kept, seen, CONTEXT), set()
    rooms = made.rooms()
    for heads, sees, place in zip(kept, seen, made.places, strict=True):
        assert (place is None) == (heads is None)
        if place is None:
            continue
        assert place.heads == heads
        window = made.windows[place.table]
        assert window is None or window >= sees
        begin = place.part * heads.number * heads.size
        assert begin + heads.number * heads.size <= rooms[place.tensor].numbers
        numbers = {(place.table, place.tensor, number) for number in range(begin, begin + heads.number * heads.size)}
        assert not taken & numbers
        taken |= numbers
    assert EngineConfig(BLOCK, 100, 1, 1, CONTEXT, windows=made.windows)
    assert {place.table for place in made.places if place} == set(range(len(made.windows)))


def test_gemma_4_of_sixty_layers(tmp_path: Path) -> None:
    """Layers that see everything keep half as much as the others: ten of them take the place of five."""
    sizes = {
        "model_type": "gemma4_text", "num_hidden_layers": 60, "num_attention_heads": 32, "num_key_value_heads": 16,
        "num_global_key_value_heads": 4, "head_dim": 256, "global_head_dim": 512, "attention_k_eq_v": True,
        "sliding_window": 1024, "hidden_size": 5376, "intermediate_size": 21_504, "vocab_size": 262_144,
        "max_position_embeddings": CONTEXT, "hidden_size_per_layer_input": 0, "eos_token_id": 1,
        "layer_types": [*["sliding_attention"] * 5, "full_attention"] * 10,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    found = model_config(tmp_path).layer_groups
    assert found.windows == (None, *[1024] * 10)
    assert {place.part for place in found.places if place and place.table == 0} == {0, 1}
    assert len(found.rooms()) == 5


@pytest.mark.parametrize("dtype", [torch.float32, FP8])
def test_layers_keep_apart_what_they_write(dtype: torch.dtype, tmp_path: Path) -> None:
    """Each group writes to its own block, all of whose tensors other groups use, too."""
    config, cpu = model_config(tiny_model("gemma4_text", tmp_path, **HALVES)), torch.device("cpu")
    groups = config.layer_groups
    assert {place.part for place in groups.places if place} == {0, 1}
    cache = KVCache.allocate(config, 5, 4, dtype, cpu, groups=groups)
    numbers = torch.Generator().manual_seed(1)
    written = []
    for layer, heads in zip(cache.layers, config.kept, strict=True):
        assert heads is not None
        pair = torch.randn(2, 4, heads.number, heads.size, generator=numbers)
        write_kv(*pair, layer, 4 * (1 + layer.table) + torch.arange(4))
        written.append(pair)
    for layer, pair in zip(cache.layers, written, strict=True):
        found = gather_blocks(layer, torch.tensor([1 + layer.table]), torch.float32)
        torch.testing.assert_close(torch.cat(found), pair, rtol=0.1 if dtype == FP8 else 0, atol=0)
    parts = {
        part.untyped_storage().data_ptr(): part for layer in cache.layers for part in layer[:4] if part is not None
    }
    held = sum(part.untyped_storage().nbytes() for part in parts.values())
    assert held == 5 * KVCache.bytes_per_block(groups, 4, dtype)
