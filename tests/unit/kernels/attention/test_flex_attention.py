"""Attention through FlexAttention against the textbook, and its lists of blocks and functions through torch's own."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import flex_attention
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.attention_case import Case, Group, make_case, shape_of, textbook
from thothy_ai.kernels.flex import FlexAttention
from thothy_ai.kernels.flex import attention as flex
from thothy_ai.kernels.flex.mods import KeyPlaces, Layer, mods
from thothy_ai.kernels.flex.tiles import SeenKeys, Tiles, heights
from thothy_ai.kernels.paged import AttentionParams, LayerCache

LENGTHS = [(1, 17), (1, 1), (1, 5), (1, 33), (1, 34), (7, 7), (3, 20), (16, 31), (2, 2)]


def params_of(name: str, heads: int) -> AttentionParams:
    """Kinds of layers."""
    slopes = tuple(2.0 ** -(1 + head) for head in range(heads))
    return {
        "plain": AttentionParams(0.21),
        "window": AttentionParams(window=9),
        "chunk": AttentionParams(window=9, chunked=True),
        "soft cap": AttentionParams(soft_cap=0.7),
        "alibi": AttentionParams(slopes=slopes),
        "all": AttentionParams(0.4, 11, 0.9, slopes=slopes),
        "all of a chunk": AttentionParams(0.4, 6, 0.9, slopes=slopes, chunked=True),
    }[name]


KINDS = ("plain", "window", "chunk", "soft cap", "alibi", "all", "all of a chunk")


def attended(case: Case, params: AttentionParams, sinks: Tensor | None = None, programs: int = 1) -> Tensor:
    attention = FlexAttention(shape_of(case), programs)
    attention.plan(case.batch)
    return attention(case.q, case.cache, params, sinks=sinks)


def check(case: Case, params: AttentionParams, sinks: Tensor | None = None) -> None:
    out = attended(case, params, sinks)
    assert out.dtype == case.q.dtype
    torch.testing.assert_close(out.double(), textbook(case, params, sinks), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize(("heads", "kv_heads", "dim", "block_size"), [(4, 4, 8, 1), (9, 3, 16, 3), (5, 1, 6, 16)])
@pytest.mark.parametrize("kind", KINDS)
def test_mixed_steps(kind: str, heads: int, kv_heads: int, dim: int, block_size: int) -> None:
    params = params_of(kind, heads)
    case = make_case(LENGTHS, heads=heads, kv_heads=kv_heads, dim=dim, block_size=block_size, seed=block_size, spare=2)
    check(case, params)
    check(case, params, torch.linspace(-3, 4, heads))
    if params.window is not None:
        check(case.with_freed_blocks(params.window, chunked=params.chunked), params)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [[(1, 203)], [(1, 17), (1, 1), (1, 133), (9, 40)]])
def test_tiles_share_what_few_sequences_see(lengths: list[tuple[int, int]], kind: str) -> None:
    """Some of them see nothing."""
    case, params = make_case(lengths, heads=6, kv_heads=2, dim=8, block_size=4, seed=5), params_of(kind, 6)
    for sinks in (None, torch.linspace(-3, 4, 6)):
        out = attended(case, params, sinks, programs=40)
        torch.testing.assert_close(out.double(), textbook(case, params, sinks), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_prompts_longer_than_a_tile_beside_groups(seed: int) -> None:
    """Whole and partial blocks, windows that begin within tiles, and shared prefixes."""
    rng = random.Random(seed)
    lengths = [(1, 40), (1, 44), (90, 150), (70, 70), (rng.randint(2, 80), 200)]
    case = make_case(lengths, heads=6, kv_heads=2, dim=8, block_size=rng.choice([2, 4, 16]), seed=seed,
                     groups=[Group(first=0, size=2, blocks=2)])  # fmt: skip
    window = rng.randint(5, 60)
    for params in (AttentionParams(), AttentionParams(window=window), AttentionParams(window=window, chunked=True)):
        check(case, params)


@pytest.mark.parametrize(
    ("kind", "part", "stride"), [("all", 0, 1), ("all", 0, 2), ("all", 1, 2), ("all of a chunk", 1, 2)]
)
def test_torch_computes_the_same(kind: str, part: int, stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its `flex_attention`, which a GPU runs, without a compiler: it reads all of the cache, and all by the mask. The
    lists of blocks join the mask here: what they leave out is not seen.
    """
    case = make_case(LENGTHS, heads=6, kv_heads=2, dim=8, block_size=4, seed=2, groups=[Group(2, 2, 1)])
    clean = LayerCache(*(each.nan_to_num(0.5) for each in case.cache[:2]))  # type: ignore[union-attr]
    clean = replace(case, cache=clean).side_by_side(part, stride, 0.7)
    params, lines = params_of(kind, 6), heights(3, 1, 8)[1]
    tiles = Tiles.prefilling(replace(clean.batch, num_decode=0), 3, lines)
    own, seen = (
        SeenKeys.of(tiles, clean.batch.block_tables[0], params, 4, len(clean.cache.keys), apart)
        for apart in (1, stride)
    )
    places = KeyPlaces.of(tiles, seen, params)
    layer = Layer(params, params.scale_of(8), 2, 3, lines, 4, stride, 32)
    queries = clean.q.unflatten(1, (2, 3))[tiles.tokens, :, tiles.members].transpose(0, 1)
    expected = flex.by_tile(layer._replace(stride=1), queries, clean.cache, own, places)
    compute = flex_attention.flex_attention

    def by_lists(*args: Tensor, block_mask: flex_attention.BlockMask, **options: Any) -> object:
        mask, blocks = block_mask.mask_mod, args[1].shape[2] // 4
        listed = torch.zeros(len(tiles.rows), blocks + 1, dtype=torch.bool)
        for ids, counts in (
            (block_mask.kv_indices, block_mask.kv_num_blocks),
            (block_mask.full_kv_indices, block_mask.full_kv_num_blocks),
        ):
            assert ids is not None
            assert counts is not None
            valid = torch.arange(ids.shape[3]) < counts[0, 0, :, None]
            listed = listed.scatter(1, torch.where(valid, ids[0, 0].long(), blocks), value=True)
        block_mask.mask_mod = lambda b, h, line, key: listed[line // lines, key // 4] & mask(b, h, line, key)
        return compute(*args, block_mask=block_mask, **options)

    monkeypatch.setattr(flex_attention, "flex_attention", by_lists)
    computed = torch.compile(flex.FlexLayer(layer), fullgraph=True, dynamic=True, backend="eager")
    keys, values = (flex._pool(part)[0] for part in clean.cache[:2])  # type: ignore[arg-type]
    with torch.inference_mode():
        found = computed(queries[None], keys, values, seen, places)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one[0], other, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_whole_blocks_are_seen_as_a_whole_and_others_not_at_all(kind: str) -> None:
    """A kernel masks only what is seen in part; a CPU's results say nothing of blocks that are listed too often."""
    case = make_case([(1, 37), (40, 61), (23, 23)], heads=4, kv_heads=2, dim=8, block_size=4, seed=8)
    params = params_of(kind, 4)
    for tiles in (Tiles.decoding(case.batch, 2, 2), Tiles.prefilling(case.batch, 2, 16)):
        seen = SeenKeys.of(tiles, case.batch.block_tables[0], params, 4, len(case.cache.keys))
        places = KeyPlaces.of(tiles, seen, params)
        _, mask = mods(Layer(params, 1.0, 2, 2, tiles.height, 4, 1, 32), places)
        head, key = torch.zeros(1, dtype=torch.int64), torch.arange(len(case.cache.keys) * 4)
        shown = mask(head, head, torch.arange(len(tiles.positions))[:, None], key)
        shown = shown.view(-1, tiles.height, len(case.cache.keys), 4)
        wholes, parts = shown.all((1, 3)), shown.any((1, 3))
        for tile, (in_part, whole) in enumerate(flex._lists(seen)):
            assert sorted(whole.tolist()) == wholes[tile].nonzero().flatten().tolist()
            assert sorted([*in_part.tolist(), *whole.tolist()]) == parts[tile].nonzero().flatten().tolist()


def test_layers_that_lie_side_by_side_in_a_block() -> None:
    """As those of different heads do in groups: blocks of one layer lie apart, and are read without a copy."""
    case = make_case(LENGTHS, heads=4, kv_heads=2, dim=8, block_size=4, seed=3)
    apart = [torch.cat((part, torch.full_like(part, torch.nan)), 1) for part in case.cache[:2]]  # type: ignore[list-item]
    cache = LayerCache(*(part[:, :4] for part in apart))
    pool, stride = flex._pool(cache.keys)
    assert stride == 2
    assert pool.data_ptr() == apart[0].data_ptr()
    blocks = pool[0].transpose(0, 1).unflatten(0, (-1, 4))[::2]
    assert torch.equal(blocks.nan_to_num(), case.cache.keys.nan_to_num())
    check(replace(case, cache=cache), AttentionParams(window=9))
    with pytest.raises(ValueError, match="lie 40 numbers apart"):
        flex._pool(torch.zeros(3, 40)[:, :32].unflatten(1, (2, 2, 8)))


def test_models_that_differ_in_their_kv_heads_alone_have_kernels_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """One code is compiled a few times only."""
    layers, by_tile = set[Layer](), flex.by_tile
    monkeypatch.setattr(flex, "by_tile", lambda layer, *others: (layers.add(layer), by_tile(layer, *others))[1])
    for kv_heads in range(1, 11):
        check(
            make_case([(1, 9)], heads=2 * kv_heads, kv_heads=kv_heads, dim=8, block_size=4, seed=1), AttentionParams()
        )
    assert len(layers) == 10


@pytest.mark.parametrize("kind", ["plain", "window"])
def test_a_broken_token_spoils_no_row_that_does_not_see_it(kind: str) -> None:
    """Though it lies in the same tiles of queries and keys."""
    params = params_of(kind, 4)
    case = make_case([(1, 30), (1, 33), (20, 20), (37, 60)], heads=4, kv_heads=2, dim=8, block_size=4, seed=12)
    out, expected = attended(case.with_broken_tokens({1: 31, 2: 7, 3: 40}), params).double(), textbook(case, params)
    seen = {token for first, end in ((1, 2), (9, 22), (39, 59)) for token in range(first, end)}
    if params.window is not None:
        seen = {1, *range(9, 9 + params.window), *range(39, 39 + params.window)}
    sound = [token for token in range(len(expected)) if token not in seen]
    torch.testing.assert_close(out[sound], expected[sound], atol=2e-6, rtol=1e-5)
    assert out[sorted(seen)].isnan().all()


class _Launches(TorchDispatchMode):
    """Names the operations that launch kernels on a GPU: neither views nor allocations, nor anything of no elements."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, _: object, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name, views = func.overloadpacket.__name__, [each.alias_info for each in func._schema.returns]
        is_view = any(each is not None and not each.is_write for each in views)
        if not is_view and not name.startswith("empty") and result.numel():
            self.names.append(name)
        return result


@pytest.mark.parametrize(
    ("programs", "sinks", "launched"),
    [
        (1, False, ["index", "index_put_"]),
        (40, False, ["index", "_softmax", "mul", "sum", "_to_copy", "index_put_"]),
        (40, True, ["index", "index", "cat", "_softmax", "mul", "sum", "_to_copy", "index_put_"]),
    ],
)
def test_a_layer_launches_little_beside_the_kernel(
    monkeypatch: pytest.MonkeyPatch, programs: int, launched: list[str], *, sinks: bool
) -> None:
    """What all layers of a step share is computed for the first of them."""
    case = make_case([(1, 203)], heads=6, kv_heads=2, dim=8, block_size=4, seed=5).of(torch.bfloat16)
    attention, by_tile, found = FlexAttention(shape_of(case), programs), flex.by_tile, list[tuple[Tensor, Tensor]]()
    monkeypatch.setattr(flex, "by_tile", lambda *args: (found.append(by_tile(*args)), found[-1])[1])
    attention.plan(case.batch)
    parts = (case.q, case.cache, AttentionParams(), torch.empty_like(case.q), torch.zeros(6) if sinks else None)
    attention(*parts)
    monkeypatch.setattr(flex, "by_tile", lambda *_: found[-1])
    with _Launches() as launches:
        attention(*parts)
    assert launches.names == launched


def test_a_plan_holds_for_its_step_only() -> None:
    steps = [[(1, 9), (20, 30)], [(1, 12)], [(40, 40), (2, 9)], []]
    cases = [make_case(each, heads=4, kv_heads=2, dim=8, block_size=4, seed=seed) for seed, each in enumerate(steps)]
    attention = FlexAttention(shape_of(cases[0]))
    with pytest.raises(RuntimeError, match="not planned"):
        attention(cases[0].q, cases[0].cache)
    for case in cases:
        attention.plan(case.batch)
        for params in (AttentionParams(), AttentionParams(window=5)):
            out = attention(case.q, case.cache, params)
            torch.testing.assert_close(out.double(), textbook(case, params), atol=2e-6, rtol=1e-5)


def test_bfloat16() -> None:
    case = make_case(LENGTHS, heads=6, kv_heads=2, dim=16, block_size=16, seed=7).of(torch.bfloat16)
    params = params_of("alibi", 6)
    torch.testing.assert_close(attended(case, params).double(), textbook(case, params), atol=1.5e-2, rtol=1e-2)
