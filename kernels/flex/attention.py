"""`FlexAttention`: an `Attention` that torch's `flex_attention` computes.

A third implementation over the same cache and block tables as plain torch and Triton's kernels. It is an oracle for
both, and computes what neither does: biases by distance (ALiBi). On a GPU, torch compiles a kernel for each kind of
layer. On a CPU, we compute tile by tile with the same lists of blocks and the same functions, since without a compiler
torch's own `flex_attention` multiplies every query with every block of the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache as remembered
from types import FunctionType, MethodType

import torch
from torch import Tensor, nn

from thothy_ai.kernels.flex.mods import KeyPlaces, Layer, mods
from thothy_ai.kernels.flex.tiles import SeenKeys, Tiles, heights
from thothy_ai.kernels.paged import PLAIN, AttentionBatch, AttentionParams, AttentionShape, LayerCache, PlannedAttention

_MAX_HEIGHT = 128
_MIN_HEIGHT = 16  # smallest height that tensor cores multiply, on a GPU
_MAX_WIDTH = 64  # tokens read at once by a program
_QUERY_BYTES, _TOKEN_BYTES = 1 << 16, 3 << 15  # of shared memory, for a tile's queries, and for keys and values ahead
_PROGRAMS, _MAX_SPLIT = 512, 16  # programs that keep a GPU busy; most tiles that share a query's keys


class FlexAttention(PlannedAttention):
    """Its groups have one row, since it gains nothing from shared prefixes. Its cache has the type of queries and, on a
    GPU, blocks of 16, 32, 64 ... tokens.
    """

    group_rows = 1

    def __init__(self, shape: AttentionShape, programs: int | None = None) -> None:
        """`programs`: the number into which a step that decodes few sequences is divided; default: enough for a GPU."""
        self._on_gpu = shape.device.type == "cuda"
        self._programs = programs or (_PROGRAMS if self._on_gpu else 1)
        self._tiles: dict[tuple[int, int, int], tuple[Tiles, ...]] = {}  # of the planned batch, by kinds of heads
        self._seen: dict[tuple[Tiles, int, AttentionParams, int], SeenKeys] = {}

    def plan(self, batch: AttentionBatch) -> None:
        """Attend over this batch from now on."""
        super().plan(batch)
        self._tiles.clear()
        self._seen.clear()

    def __call__(
        self,
        q: Tensor,
        cache: LayerCache,
        params: AttentionParams = PLAIN,
        out: Tensor | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """q [T, H, D] -> [T, H, D]; rows beyond the batch's tokens are zeros."""
        kv_heads = cache.keys.shape[2]
        grouped = q.unflatten(1, (kv_heads, -1))  # [T, kv_heads, heads, D]
        heads, out = grouped.shape[2], torch.empty_like(q) if out is None else out
        out[self._num_tokens :].zero_()
        for tiles in self._tiles_of(kv_heads, heads, q.shape[2] * q.element_size()):
            queries = grouped[tiles.tokens, :, tiles.members].transpose(0, 1)
            attended, mass = self._attend(queries, cache, tiles, params, heads)
            tokens, members = tiles.merged
            if tiles.split > 1 or sinks is not None:
                of_lines = None if sinks is None else sinks.view(kv_heads, heads)[:, members]
                attended = _merged(attended, mass, tiles, of_lines).to(q.dtype)
            out.unflatten(1, (kv_heads, -1))[tokens, :, members] = attended.transpose(0, 1)
        return out

    @property
    def _num_tokens(self) -> int:
        """Tokens of the planned batch; a sequence that decodes has one."""
        return self._batch.num_decode + sum(self._batch.query_lens[self._batch.num_decode :])

    def _tiles_of(self, kv_heads: int, heads: int, head_bytes: int) -> tuple[Tiles, ...]:
        key = kv_heads, heads, head_bytes
        if key not in self._tiles:
            most = min(_MAX_HEIGHT, _QUERY_BYTES // head_bytes)
            low, high = heights(heads, _MIN_HEIGHT if self._on_gpu else 1, most)
            batch = self._batch
            split = max(1, min(_MAX_SPLIT, self._programs // max(1, kv_heads * batch.num_decode)))
            decoding = (Tiles.decoding(batch, heads, low, split),) if batch.num_decode else ()
            others = len(batch.query_lens) > batch.num_decode
            self._tiles[key] = (*decoding, *((Tiles.prefilling(batch, heads, high),) if others else ()))
        return self._tiles[key]

    def _attend(
        self, queries: Tensor, cache: LayerCache, tiles: Tiles, params: AttentionParams, heads: int
    ) -> tuple[Tensor, Tensor]:
        """queries [kv_heads, lines, D] -> the same, and the logarithm [kv_heads, lines] of what scores add up to."""
        num_blocks, block_size = cache.keys.shape[:2]
        pool, stride = _pool(cache.keys) if self._on_gpu else (cache.keys, 1)  # a CPU takes a tile's blocks by id
        key = tiles, cache.table, params, stride
        if key not in self._seen:
            table = self._batch.block_tables[cache.table]
            self._seen[key] = SeenKeys.of(tiles, table, params, block_size, num_blocks, stride)
        seen, size = self._seen[key], queries.shape[-1]
        places, head_bytes = KeyPlaces.of(tiles, seen, params), size * queries.element_size()
        kv_heads, scale = cache.keys.shape[2], params.scale_of(size)
        layer = Layer(params, scale, kv_heads, heads, tiles.height, block_size, stride, head_bytes)
        if not self._on_gpu:
            return by_tile(layer, queries, cache, seen, places)
        attended, mass = _compiled(layer)(queries[None], pool, _pool(cache.values)[0], seen, places)
        return attended[0], mass[0]


def _merged(attended: Tensor, mass: Tensor, tiles: Tiles, sinks: Tensor | None) -> Tensor:
    """[kv_heads, lines, …] of tiles that share what their queries see -> [kv_heads, merged lines, D] of the queries.

    `sinks` [kv_heads, merged lines]: one more score of each, whose value is zeros, has its share of the softmax.
    """
    results = attended.unflatten(1, (-1, tiles.split, tiles.height))
    scores = mass.unflatten(1, (-1, tiles.split, tiles.height))
    if sinks is not None:
        scores = torch.cat((scores, sinks.unflatten(1, (-1, 1, tiles.height))), 2)
    shares = scores.softmax(2)[:, :, : tiles.split, :, None]
    merged: Tensor = (results * shares).sum(2).flatten(1, 2)
    return merged


def _pool(blocks: Tensor) -> tuple[Tensor, int]:
    """Blocks [N, block_size, kv_heads, D] as one sequence [1, kv_heads, tokens, D], without a copy, and how many of its
    blocks it is from one of ours to the next: layers may lie side by side in a block.
    """
    number, block_size, kv_heads, dim = blocks.shape
    stride, rest = divmod(blocks.stride(0), block_size * blocks.stride(1))
    if rest:
        raise ValueError(f"blocks of {block_size} tokens that lie {blocks.stride(0)} numbers apart")
    tokens = ((number - 1) * stride + 1) * block_size
    strides = (tokens * blocks.stride(1), blocks.stride(2), blocks.stride(1), blocks.stride(3))
    return blocks.as_strided((1, kv_heads, tokens, dim), strides), stride


class FlexLayer(nn.Module):
    """A call of flex_attention for layers of one kind. When torch compiles a module, its attributes are constants."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer
        # A copy of the code for each kind, since torch limits the kernels per code object (`recompile_limit`).
        code = FlexLayer.forward.__code__.replace()
        self.forward = MethodType(FunctionType(code, globals()), self)  # type: ignore[method-assign]

    def forward(
        self, q: Tensor, keys: Tensor, values: Tensor, seen: SeenKeys, places: KeyPlaces
    ) -> tuple[Tensor, Tensor]:
        """q [1, kv_heads, lines, D] over a pool -> the same, and the logarithm [1, kv_heads, lines] of what scores add
        up to.
        """
        from torch.nn.attention.flex_attention import (  # noqa: PLC0415  slow to import
            AuxRequest,
            BlockMask,
            FlexKernelOptions,
            flex_attention,
        )

        layer = self.layer
        score, mask = mods(layer, places)
        blocks = BlockMask.from_kv_blocks(
            seen.num_parts[None, None],
            seen.parts[None, None],
            seen.num_wholes[None, None],
            seen.wholes[None, None],
            BLOCK_SIZE=(layer.height, layer.block_size),
            mask_mod=mask,
            seq_lengths=(q.shape[2], keys.shape[2]),
            compute_q_blocks=False,
        )
        width = min(layer.block_size, _MAX_WIDTH)
        options: FlexKernelOptions = {
            "BACKEND": "TRITON",  # not the one for decoding, which takes a batch of one size only
            "BLOCK_M": layer.height,
            "BLOCK_N": width,
            "num_warps": 8 if layer.height == _MAX_HEIGHT else 4,
            "num_stages": max(1, min(3, _TOKEN_BYTES // (2 * width * layer.head_bytes))),
        }
        attended, beside = flex_attention(
            q,
            keys,
            values,
            score_mod=score,
            block_mask=blocks,
            scale=layer.scale,
            kernel_options=options,
            return_aux=AuxRequest(lse=True),
        )
        assert beside.lse is not None
        return attended, beside.lse


@remembered
def _compiled(layer: Layer) -> Callable[..., tuple[Tensor, Tensor]]:
    """Compiled for any number of tiles: twice if the first number equals a size that stays, such as that of KV heads,
    since torch takes sizes that are equal for one.
    """
    return torch.compile(FlexLayer(layer), fullgraph=True, dynamic=True)


def by_tile(
    layer: Layer, queries: Tensor, cache: LayerCache, seen: SeenKeys, places: KeyPlaces
) -> tuple[Tensor, Tensor]:
    """What a program of flex_attention's kernel computes for each tile: queries [kv_heads, lines, D] -> the same, and
    the logarithm [kv_heads, lines] of what scores add up to.
    """
    score_mod, mask_mod = mods(layer, places)
    head = torch.arange(queries.shape[0])[:, None, None]
    out, mass = torch.empty_like(queries), queries.new_empty(queries.shape[:2], dtype=torch.float32)
    for tile, (parts, wholes) in enumerate(_lists(seen)):
        lines = slice(tile * layer.height, (tile + 1) * layer.height)
        line = torch.arange(lines.start, lines.stop)[:, None]
        blocks = torch.cat((parts, wholes))
        key = (blocks[:, None] * layer.block_size + torch.arange(layer.block_size)).flatten()
        in_parts = len(parts) * layer.block_size
        shown = torch.ones(layer.height, len(key), dtype=torch.bool)
        shown[:, :in_parts] = mask_mod(head, head, line, key[:in_parts])
        written = shown.any(0)[:, None, None]  # a block's other tokens may be anything
        keys, values = (
            part.index_select(0, blocks).flatten(0, 1).masked_fill(~written, 0).transpose(0, 1).float()
            for part in (cache.keys, cache.values)
        )
        scores = queries[:, lines].float() @ keys.transpose(1, 2) * layer.scale
        scores = score_mod(scores, head, head, line, key).masked_fill(~shown, -torch.inf)
        mass[:, lines] = scores.logsumexp(-1)
        out[:, lines] = (scores.softmax(-1) @ values).to(out.dtype)
    return out, mass


def _lists(seen: SeenKeys) -> Iterator[tuple[Tensor, Tensor]]:
    """Each tile's blocks that it sees in part, and those that it sees as a whole."""
    counts = zip(seen.num_parts.tolist(), seen.num_wholes.tolist(), strict=True)
    for tile, (parts, wholes) in enumerate(counts):
        yield seen.parts[tile, :parts].long(), seen.wholes[tile, :wholes].long()
