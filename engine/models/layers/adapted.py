"""Linear layers that adapters can change: a wrapper for any linear layer, and the adapters' weights on the device.

A wrapper costs nothing in a pass without adapters, in which `tokens` is None. All weights of an adapter are contiguous
in its slot, so that one copy transfers them from host memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from thothy_ai.engine.models.layers.linear import Activations, Linear
from thothy_ai.kernels.lora import RANK_MULTIPLE, AdapterTokens, AdapterWeights, Shrunk, output_blocks
from thothy_ai.kernels.operations import Operations

# Passes of at most this many tokens compute adapters on a second stream: they are bound by memory latency, whereas
# larger ones keep the device busy. The last bit of a result can depend on this, as it depends on the rows in cuBLAS.
_FEW_TOKENS = 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AdaptedModule:
    """A module of the checkpoint within a layer: its rows begin at `first`, in `order` [rows] if that is not None."""

    site: int
    part: int
    first: int
    rows: int
    inputs: int
    order: Tensor | None


@dataclass(frozen=True, slots=True)
class _Site:
    """A linear layer: the rows of its modules, and its inputs."""

    rows: list[int]
    inputs: int

    def low(self, rank: int) -> int:
        return len(self.rows) * rank

    def numbers(self, rank: int) -> int:
        """Of A and of B, in a slot."""
        return rank * (len(self.rows) * self.inputs + sum(self.rows))


class HostWeights(NamedTuple):
    """An adapter's numbers as they lie in a slot, and the ranks of its sites [sites] int32, in host memory."""

    numbers: Tensor
    ranks: Tensor


class AdapterBank:
    """The layers of a model that adapters can change, and the slots on its device once they are allocated.

    `tokens` has the slots of the tokens in the pass being launched.
    """

    def __init__(self, operations: Operations) -> None:
        self.operations = operations
        self.modules: dict[str, AdaptedModule] = {}  # by the name of a checkpoint's module
        self.tokens: AdapterTokens | None = None
        self.weights: list[AdapterWeights] = []  # by site
        self._sites: list[_Site] = []
        self._stream: torch.cuda.Stream | None = None  # the second one
        self._pool: Tensor
        self._ranks: Tensor
        self._slots: Tensor  # of the pass's tokens

    def wrapped(
        self, layer: Linear, outputs: Mapping[str, int], inputs: int, orders: Mapping[str, Tensor]
    ) -> AdaptedLinear:
        """The layer of these modules (name: rows), changed by adapters from now on."""
        site, first = len(self._sites), 0
        for part, (name, rows) in enumerate(outputs.items()):
            self.modules[name] = AdaptedModule(site, part, first, rows, inputs, orders.get(name))
            first += rows
        self._sites.append(_Site(list(outputs.values()), inputs))
        return AdaptedLinear(layer, site, self)

    # Slots

    @property
    def slots(self) -> int:
        """The number of slots; 0 until `allocate`."""
        return len(self._pool) if self.weights else 0

    @property
    def num_sites(self) -> int:
        """Linear layers that adapters may change."""
        return len(self._sites)

    def numbers_per_slot(self, rank: int) -> int:
        """Numbers of an adapter of this rank or less."""
        return sum(site.numbers(padded(rank)) for site in self._sites)

    def widest_low(self, rank: int) -> int:
        """The most columns that A x has in a layer, for adapters of this rank or less."""
        return max((site.low(padded(rank)) for site in self._sites), default=0)

    def allocate(self, slots: int, rank: int, tokens: int, dtype: torch.dtype, device: torch.device) -> None:
        """Allocate `slots` adapters of at most `rank`, and buffers for passes of at most `tokens` tokens."""
        rank = padded(rank)
        self._pool = torch.zeros(slots, self.numbers_per_slot(rank), dtype=dtype, device=device)
        self._ranks = torch.zeros(slots + 1, len(self._sites), dtype=torch.int32, device=device)  # the last remain 0
        self._slots = torch.full((tokens,), slots, dtype=torch.int32, device=device)
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.weights = [
            AdapterWeights(*views, self._ranks[:, index], output_blocks(site.rows, device))
            for index, (site, views) in enumerate(zip(self._sites, self.views(self._pool, rank), strict=True))
        ]

    def release(self) -> None:
        """Free the slots, even if a failure left them incomplete."""
        self.tokens, self.weights = None, []
        self._pool = self._ranks = self._slots = torch.empty(0)

    def views(self, numbers: Tensor, rank: int) -> list[tuple[Tensor, Tensor]]:
        """A [S, parts * R, in] and B [S, out, R] of each site within slots [S, numbers]."""
        found, at, slots = [], 0, len(numbers)
        for site in self._sites:
            middle, end = at + site.low(rank) * site.inputs, at + site.numbers(rank)
            a = numbers[:, at:middle].view(slots, site.low(rank), site.inputs)
            found.append((a, numbers[:, middle:end].view(slots, sum(site.rows), rank)))
            at = end
        return found

    def fill(self, slot: int, weights: HostWeights) -> None:
        """Copy an adapter to a slot, on the current stream."""
        self._pool[slot].copy_(weights.numbers, non_blocking=True)
        self._ranks[slot].copy_(weights.ranks, non_blocking=True)

    # A pass

    @property
    def buffer(self) -> Tensor:
        """The slots of a pass's tokens [most tokens] int32, in place, which graphs read."""
        return self._slots

    def begin(self, count: int) -> None:
        """Begin a pass of `count` tokens, whose slots are in the buffer."""
        self.tokens = self.operations.sort_by_adapter(self._slots[:count], self.slots)

    def narrow(self, wanted: Tensor) -> None:
        """Restrict the rest of the pass to these tokens [R] int64."""
        if self.tokens is not None:
            self.tokens = self.operations.sort_by_adapter(self._slots.index_select(0, wanted), self.slots)

    def end(self) -> None:
        """The next pass has no adapters."""
        self.tokens = None

    @property
    def forks(self) -> bool:
        """Whether the pass computes adapters on a second stream."""
        return self._stream is not None and self.tokens is not None and len(self.tokens.order) <= _FEW_TOKENS

    def shrink(self, x: Activations, site: int) -> Shrunk:
        """A x of the pass's tokens."""
        if self.tokens is None:
            raise ValueError("the pass has no adapters")
        return self.operations.shrink(x, self.weights[site], self.tokens)

    def beside(self, work: Callable[[], T], layer: Callable[[], Tensor]) -> tuple[T, Tensor]:
        """The results of both, of which `work` runs on the second stream if the pass forks. The streams wait for each
        other in turn, so that either may reuse memory that the other has read.
        """
        if self._stream is None or not self.forks:
            return work(), layer()
        own = torch.cuda.current_stream()
        self._stream.wait_stream(own)
        try:
            with torch.cuda.stream(self._stream):
                done = work()
            return done, layer()
        finally:  # also for an error: what the second stream reads is freed then
            own.wait_stream(self._stream)


class AdaptedLinear:
    """A linear layer that adds the low-rank products of its tokens' adapters."""

    def __init__(self, layer: Linear, site: int, bank: AdapterBank) -> None:
        self.layer, self._site, self._bank = layer, site, bank
        self.takes_fp8, self.num_bytes = layer.takes_fp8, layer.num_bytes

    def __call__(self, x: Activations) -> Tensor:
        if self._bank.forks:
            added, out = self._bank.beside(partial(self._added, x), partial(self.layer, x))
            return out.add_(added)
        out, shrunk = self.in_parts(x)
        if shrunk is not None:
            self._bank.operations.expand_add(shrunk, out)
        return out

    def in_parts(self, x: Activations) -> tuple[Tensor, Shrunk | None]:
        """The outputs without adapters, and A x, if the pass has adapters, of which B is still to be added."""
        if self._bank.tokens is None:
            return self.layer(x), None
        shrunk, out = self._bank.beside(partial(self._bank.shrink, x, self._site), partial(self.layer, x))
        return out, shrunk

    def _added(self, x: Activations) -> Tensor:
        """B A x [T, out] float32."""
        shrunk = self._bank.shrink(x, self._site)
        added = shrunk.low.new_zeros(shrunk.low.shape[1], shrunk.weights.b.shape[1])
        self._bank.operations.expand_add(shrunk, added)
        return added


def outputs_in_parts(layer: Linear, x: Activations) -> tuple[Tensor, Shrunk | None]:
    """The outputs of any layer, and what `AdaptedLinear.in_parts` leaves to be added."""
    return layer.in_parts(x) if isinstance(layer, AdaptedLinear) else (layer(x), None)


def padded(rank: int) -> int:
    """The rank that slots have for adapters of this one."""
    return -(-rank // RANK_MULTIPLE) * RANK_MULTIPLE
