"""Groups of layers that share blocks: the layers of a group see equally far back, and all groups' blocks take equal
memory.

A sequence has a block table for each group, and all groups take their blocks from one pool, so that a block given back
by one group's window can serve any other group (Zhang et al., "Jenga: effective memory management for serving LLM with
heterogeneity", 2025; vLLM). Layers of different groups use different blocks of the same tensors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from thothy_ai.kernels.paged import KVHeads

_MAX_GROUPS = 16
_WINDOWS = 4  # length, in windows, of the sequences whose memory is compared
_WORTHWHILE = 0.9  # share of a single group's memory below which several are used


class LayerPlace(NamedTuple):
    """Where a layer keeps its keys and values: the table of its blocks, its tensor, and its part of that tensor.
    Several layers of a group share a tensor if each keeps at most half as much as the largest layer.
    """

    heads: KVHeads
    table: int
    tensor: int
    part: int


class TensorRoom(NamedTuple):
    """A tensor's room per token: the numbers of keys, and as many of values unless they are latents; heads, if each has
    a scale.
    """

    numbers: int
    heads: int
    latent: bool = False

    @property
    def parts(self) -> int:
        """The number of tensors with `numbers` numbers: keys and values, or only latents."""
        return 1 if self.latent else 2


@dataclass(frozen=True, slots=True)
class LayerGroups:
    """`windows`: for each group, how many tokens a token sees, itself included; None: all before it. The first group
    sees the most. `places`: for each layer; None for a layer without keys and values of its own.
    """

    windows: tuple[int | None, ...]
    places: tuple[LayerPlace | None, ...]

    @classmethod
    def single(cls, kept: Iterable[KVHeads | None], window: int | None = None) -> LayerGroups:
        """All layers in one group."""
        return cls((window,), tuple(each and LayerPlace(each, 0, index, 0) for index, each in enumerate(kept)))

    @classmethod
    def of(cls, kept: Sequence[KVHeads | None], seen: Sequence[int], context: int) -> LayerGroups:
        """The division in which a sequence of a few windows takes the least memory; one group unless several save much.

        `seen`: for each layer, how many tokens a token sees in a context of at most `context`. Groups of fewer layers
        leave fewer places empty, but cost a sequence more tables.
        """
        kinds = defaultdict[tuple[int, KVHeads], list[int]](list)
        for index, (heads, sees) in enumerate(zip(kept, seen, strict=True)):
            if heads is not None:
                kinds[min(sees, context), heads].append(index)
        *narrower, widest = sorted({sees for sees, _ in kinds})
        single = cls.single(kept, widest if widest < context else None)
        if not narrower:
            return single
        length = min(context, _WINDOWS * narrower[-1])
        largest = max(_numbers(heads) for _, heads in kinds)
        together = min(widest, length) * sum(len(layers) * _numbers(heads) for (_, heads), layers in kinds.items())
        best, least = single, (_WORTHWHILE * together, 1)
        for tensors in range(1, max(map(len, kinds.values())) + 1):
            places: list[LayerPlace | None] = [None] * len(kept)
            groups = list[int]()  # tokens that each sees
            for (sees, heads), layers in sorted(kinds.items(), reverse=True):
                parts = largest // _numbers(heads)
                for place, index in enumerate(layers):
                    group, inside = divmod(place, tensors * parts)
                    places[index] = LayerPlace(heads, len(groups) + group, *divmod(inside, parts))
                groups += [sees] * -(-len(layers) // (tensors * parts))
            cost = tensors * largest * sum(min(sees, length) for sees in groups), len(groups)
            if len(groups) <= _MAX_GROUPS and cost < least:
                best, least = cls(tuple(each if each < context else None for each in groups), tuple(places)), cost
        return best

    def rooms(self) -> dict[int, TensorRoom]:
        """For each tensor, the room that its layers need."""
        rooms = defaultdict[int, TensorRoom](lambda: TensorRoom(0, 0))
        for heads, _, tensor, part in filter(None, self.places):
            numbers, scales, _ = rooms[tensor]
            ends = (part + 1) * heads.number * heads.size, (part + 1) * heads.number
            rooms[tensor] = TensorRoom(max(numbers, ends[0]), max(scales, ends[1]), heads.latent > 0)
        return rooms


def _numbers(heads: KVHeads) -> int:
    return heads.number * heads.size
