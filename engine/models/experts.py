"""Reads the weights of experts, in any form that checkpoints have, into one stack per layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.models.cut import cut_gate_up, cut_inputs, cut_rows
from thothy_ai.engine.models.ranks import WHOLE, Share
from thothy_ai.engine.models.tensors import Dense, TensorSource
from thothy_ai.kernels.experts import MXFP4_BLOCK, ExpertMatrix, ExpertWeights, Mxfp4
from thothy_ai.kernels.fp8 import BlockQuantized, Quantized
from thothy_ai.kernels.reference.quantize import dequantize_blocks, quantize_fp8

_MULTIPLE = 8  # rows of 16 bytes, of 16-bit numbers
_MAX_EXPERTS = 4096  # per layer; looking up each one's names takes time
Quantize = Callable[[Tensor], Quantized]
Parts = Sequence[Tensor | Quantized]  # parts of an expert's matrix, stacked


@dataclass(frozen=True, slots=True)
class ExpertSizes:
    """The `count` of a layer's experts, how many (`top_k`) each token goes to, and their inner size.

    `shared` is the inner size of experts that every token goes to, `layers` the number of layers with experts.
    UnsupportedModelError for sizes that kernels can't compute with.
    """

    count: int
    top_k: int
    inner: int
    layers: int
    shared: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.top_k <= self.count:
            raise UnsupportedModelError(f"tokens that go to {self.top_k} of {self.count} experts are not implemented")
        if self.count > _MAX_EXPERTS:
            raise UnsupportedModelError(f"{self.count} experts: at most {_MAX_EXPERTS} are implemented")
        if self.inner < 1 or self.inner % _MULTIPLE:
            raise UnsupportedModelError(f"experts of an inner size of {self.inner}: only multiples of {_MULTIPLE} are")

    @property
    def active_inner(self) -> int:
        """The inner sizes of all experts that a token goes through in one layer, added up."""
        return self.top_k * self.inner + self.shared


@dataclass(frozen=True, slots=True)
class ExpertNames:
    """The names of a layer's experts in a checkpoint.

    Single experts are at `experts`, their number and a projection's name; stacks of all experts at `stacked` and that
    name. `gate` None: they have no gates. `shared`: where an expert is that is read as the last one, or None.
    """

    experts: str
    stacked: str
    gate: str | None = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    shared: str | None = None

    def one(self, expert: int) -> str:
        """The prefix of a single expert's projections."""
        return f"{self.experts}{expert}."


def read_experts(
    source: TensorSource,
    names: ExpertNames,
    sizes: ExpertSizes,
    hidden: int,
    quantize: Quantize | None,
    share: Share = WHOLE,
) -> ExpertWeights:
    """Read a layer's experts one at a time: fp8 stays, other formats are dequantized and passed to `quantize`.

    fp8 in blocks is rounded again, with a scale for each output. A rank has a `share` of the inner size of each.
    """
    gates, downs = f"{names.stacked}gate_up_proj", f"{names.stacked}down_proj"
    rows, inner, experts = 2 * sizes.inner, sizes.inner, sizes.count
    parts: tuple[Tensor | Iterable[Parts], Tensor | Iterable[Parts]]
    if not source.holds(gates):
        parts = _one_by_one(source, names, map(names.one, range(experts)), sizes, hidden, share)
    # Qwen3-VL is published with both transposed; at most one of them may be square.
    elif source.holds(gates, experts, hidden, rows) and source.holds(downs, experts, inner, hidden):
        pair = source.tensor(gates, experts, hidden, rows), source.tensor(downs, experts, inner, hidden)
        parts = pair[0].transpose(1, 2), pair[1].transpose(1, 2)
    else:
        parts = source.tensor(gates, experts, rows, hidden), source.tensor(downs, experts, hidden, inner)
    if isinstance(parts[0], Tensor) and isinstance(parts[1], Tensor):
        parts = cut_gate_up(parts[0], share), parts[1][:, :, share.part(inner)]
    if names.shared is not None:
        beside = _one_by_one(source, names, (names.shared,), sizes, hidden, share)
        parts = chain(_each(parts[0]), beside[0]), chain(_each(parts[1]), beside[1])
        experts += 1
    gate_up, down = (stack_experts(part, experts, quantize) for part in parts)
    if type(gate_up) is not type(down):
        raise UnsupportedModelError(f"{names.experts}: a layer whose experts are fp8 in part is not implemented")
    return ExpertWeights(gate_up, down)


def _one_by_one(
    source: TensorSource, names: ExpertNames, prefixes: Iterable[str], sizes: ExpertSizes, hidden: int, share: Share
) -> tuple[Iterable[Parts], Iterable[Parts]]:
    """The experts with these prefixes: their gate and up, and their down."""
    inner, prefixes = share.part(sizes.inner), list(prefixes)

    def gate_up(prefix: str) -> Parts:
        parts = [f"{prefix}{name}.weight" for name in (names.gate, names.up) if name is not None]
        rows = [_by_output(source.dense(part, sizes.inner, hidden)) for part in parts]
        if len({isinstance(each, Tensor) for each in rows}) > 1:
            raise UnsupportedModelError(f"{parts[0]}: only a part of this expert is quantized")
        return rows if share.whole else [cut_rows(each, inner) for each in rows]

    def down(prefix: str) -> Parts:
        name = f"{prefix}{names.down}.weight"
        made = _by_output(source.dense(name, hidden, sizes.inner))
        return (made if share.whole else cut_inputs(made, inner, name),)

    return map(gate_up, prefixes), map(down, prefixes)


def _by_output(matrix: Dense) -> Tensor | Quantized:
    """The matrix, rounded again if it has a scale per block: kernels of experts need one per output."""
    if not isinstance(matrix, BlockQuantized):
        return matrix
    if matrix.values.is_meta:
        return Quantized(matrix.values, matrix.scales.new_empty(len(matrix.values), 1))
    return quantize_fp8(dequantize_blocks(matrix))


def read_mxfp4(source: TensorSource, stacked: str, sizes: ExpertSizes, hidden: int) -> tuple[Mxfp4, Mxfp4]:
    """A layer's experts in MXFP4, rows in the order in which they are stored."""
    gate_up = _mxfp4(source, f"{stacked}gate_up_proj", sizes.count, 2 * sizes.inner, hidden)
    return gate_up, _mxfp4(source, f"{stacked}down_proj", sizes.count, hidden, sizes.inner)


def _mxfp4(source: TensorSource, name: str, count: int, rows: int, inputs: int) -> Mxfp4:
    """The stack [E, rows, inputs]; in checkpoints, a block's 16 bytes are a separate axis."""
    if inputs % MXFP4_BLOCK:
        raise UnsupportedModelError(f"{name}: MXFP4 of {inputs} inputs is not implemented")
    shape = count, rows, inputs // MXFP4_BLOCK
    blocks = source.stored(f"{name}_blocks", *shape, MXFP4_BLOCK // 2, dtype=torch.uint8)
    return Mxfp4(blocks.flatten(2), source.stored(f"{name}_scales", *shape, dtype=torch.uint8))


def cut_mxfp4(experts: tuple[Mxfp4, Mxfp4], share: Share) -> tuple[Mxfp4, Mxfp4]:
    """A rank's share of the first matrices' rows, all of gate and then all of up, and of the second's inputs.

    UnsupportedModelError if that cuts through blocks.
    """
    gate_up, down = experts
    blocks = down.scales.shape[2]
    if blocks % share.size:
        raise UnsupportedModelError(f"experts in MXFP4 of {blocks} blocks do not divide by {share.size} ranks")
    part = share.part(blocks)
    bytes_ = slice(part.start * MXFP4_BLOCK // 2, part.stop * MXFP4_BLOCK // 2)
    own = Mxfp4(down.blocks[:, :, bytes_].contiguous(), down.scales[:, :, part].contiguous())
    return Mxfp4(*(cut_gate_up(each, share) for each in gate_up)), own


def stack_experts(matrices: Tensor | Iterable[Parts], count: int, quantize: Quantize | None) -> ExpertMatrix:
    """A stack [count, ...] of experts' matrices, filled one by one, so that at most one is held twice."""
    if isinstance(matrices, Tensor) and quantize is None:
        return matrices.contiguous()
    stacks: list[Tensor] = []
    for expert, parts in enumerate(_each(matrices)):
        if stacks and stacks[0].is_meta:
            continue  # all are alike, and there is nothing to copy
        made = [quantize(part) if quantize is not None and isinstance(part, Tensor) else part for part in parts]
        held = [(part,) if isinstance(part, Tensor) else part for part in made]  # with its scales, if it is fp8
        pieces = list(zip(*held, strict=True))
        stacks = stacks or [each[0].new_empty(count, sum(map(len, each)), *each[0].shape[1:]) for each in pieces]
        for stack, each in zip(stacks, pieces, strict=True):
            if not stack.is_meta:
                torch.cat([_raw(piece) for piece in each], out=_raw(stack)[expert])
    return stacks[0] if len(stacks) == 1 else Quantized(*stacks)


def _each(matrices: Tensor | Iterable[Parts]) -> Iterable[Parts]:
    return ((matrix,) for matrix in matrices) if isinstance(matrices, Tensor) else matrices


def _raw(tensor: Tensor) -> Tensor:
    """The tensor, viewed as bytes if it is fp8, which torch.cat does not accept."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.float8_e4m3fn else tensor
