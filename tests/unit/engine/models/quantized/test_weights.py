"""Packed weights below each other: one layer where the format allows it, separate layers where it does not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.support.integer_weights import Form, random_weight
from thothy_ai.engine.models.layers.integer_linear import GroupedLinear, Int8Linear
from thothy_ai.engine.models.layers.linear import SeparateLinears, linear
from thothy_ai.engine.models.quantized.fp8 import BlockWeight
from thothy_ai.engine.models.quantized.grouped import GroupedNumbers, GroupedWeight
from thothy_ai.engine.models.quantized.int8 import Int8Weight
from thothy_ai.engine.models.tensors import Weight, num_rows, stacked
from thothy_ai.kernels.fp8 import FP8, BlockQuantized, Quantized
from thothy_ai.kernels.reference.operations import ReferenceOperations
from thothy_ai.kernels.reference.quantize import dequantize_blocks, quantize_fp8, quantize_int8

CPU = torch.device("cpu")
FORM = Form(16, 96, 32, zeros=True)
OPERATIONS = ReferenceOperations()


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def ordered(seed: int | None, form: Form = FORM, scale_type: torch.dtype = torch.float16) -> GroupedWeight:
    order = None if seed is None else torch.randperm(form.inputs, generator=torch.Generator().manual_seed(seed)).int()
    return GroupedWeight(random_weight(form, CPU, scale_type, seed or 0)[0], order)


def results(weights: list[Weight], x: Tensor) -> Tensor:
    layers = [weight.linear(None, x.dtype, OPERATIONS) for weight in weights]  # type: ignore[union-attr]
    return torch.cat([layer(x) for layer in layers], 1)


ONE, OTHER = ordered(1), ordered(2)
STACKS: dict[str, tuple[list[Weight], int]] = {
    "in their own order": ([ordered(None), ordered(None)], 1),
    "in the same order": ([ONE, ONE, ONE], 1),
    "in different orders": ([ONE, OTHER], 2),
    "one of them in order": ([ONE, ordered(None)], 2),
    "other groups": ([ordered(None), ordered(None, FORM._replace(group=64))], 2),
    "other bits": ([ordered(None), ordered(None, FORM._replace(bits=8))], 2),
    "one without zeros": ([ordered(None), ordered(None, FORM._replace(zeros=False))], 2),
    "other types of scales": ([ordered(None), ordered(None, scale_type=torch.bfloat16)], 2),
    "int8": ([Int8Weight(quantize_int8(normal(16, 96, seed=seed))) for seed in range(3)], 1),
    "int8 and int4": ([Int8Weight(quantize_int8(normal(16, 96))), ordered(None)], 2),
}  # fmt: skip


@pytest.mark.parametrize("name", STACKS)
def test_a_stack_computes_what_its_parts_do(name: str) -> None:
    parts, count = STACKS[name]
    made, x = stacked(parts), normal(5, 96)
    assert len(made) == count
    assert sum(map(num_rows, made)) == sum(map(num_rows, parts))
    torch.testing.assert_close(results(made, x), results(parts, x))


def test_neighbours_of_one_form_are_joined_in_their_order() -> None:
    plain, fp8, int4 = normal(8, 96), quantize_fp8(normal(16, 96)), ordered(None)
    made = stacked([plain, plain, fp8, fp8, int4, int4, plain])
    assert [type(weight) for weight in made] == [Tensor, Quantized, GroupedWeight, Tensor]
    assert [num_rows(weight) for weight in made] == [16, 32, 32, 8]


@pytest.mark.parametrize("weight", [ONE, Int8Weight(quantize_int8(normal(16, 96)))], ids=["int4", "int8"])
def test_reordered_rows(weight: GroupedWeight | Int8Weight) -> None:
    order, x = torch.randperm(16, generator=torch.Generator().manual_seed(3)), normal(5, 96)
    torch.testing.assert_close(results([weight.reordered(order)], x), results([weight], x)[:, order])
    assert (weight.rows, weight.inputs) == (16, 96)


def in_blocks(rows: int, inputs: int, height: int, width: int, seed: int) -> BlockWeight:
    scales = torch.rand(-(-rows // height), -(-inputs // width), generator=torch.Generator().manual_seed(seed))
    values = (50 * normal(rows, inputs, seed=seed)).to(FP8)
    return BlockWeight(BlockQuantized(values, scales, height, width))


@pytest.mark.parametrize(
    ("rows", "heights", "height"),
    [
        ((256, 128, 128), (128, 128, 128), 128),
        ((256, 100), (128, 128), 128),
        ((96, 32, 40), (128, 128, 128), 32),
        ((37, 128), (128, 128), 1),
        ((128, 64), (64, 32), 32),
    ],
)
def test_blocks_below_each_other_keep_their_values(
    rows: tuple[int, ...], heights: tuple[int, ...], height: int
) -> None:
    parts = [in_blocks(each, 200, high, 64, seed) for seed, (each, high) in enumerate(zip(rows, heights, strict=True))]
    [joined] = stacked(parts)
    assert isinstance(joined, BlockWeight)
    assert (joined.rows, joined.inputs, joined.blocks.height) == (sum(rows), 200, height)
    wanted = torch.cat([dequantize_blocks(part.blocks) for part in parts])
    assert torch.equal(dequantize_blocks(joined.blocks), wanted)
    order = torch.randperm(sum(rows), generator=torch.Generator().manual_seed(3))
    assert torch.equal(dequantize_blocks(joined.reordered(order).blocks), wanted[order])


def test_blocks_of_other_widths_or_forms_are_not_joined() -> None:
    blocks = in_blocks(128, 96, 128, 64, 0)
    assert len(stacked([blocks, in_blocks(128, 96, 128, 32, 1)])) == 2
    assert len(stacked([blocks, quantize_fp8(normal(16, 96)), blocks])) == 3
    assert blocks.joined([Int8Weight(quantize_int8(normal(16, 96)))]) is None


def test_a_layer_in_blocks_quantizes_its_activations_by_group() -> None:
    weight = in_blocks(48, 200, 32, 64, 0)
    x = normal(5, 200, seed=1) * torch.logspace(-2, 2, 200)  # by token, the small ones would vanish
    bias = normal(48)
    layer = weight.linear(bias, torch.float32, OPERATIONS)
    wide = dequantize_blocks(weight.blocks)
    got, wanted = layer(x) - bias, x @ wide.T
    assert float((got - wanted).norm() / wanted.norm()) < 0.04
    assert torch.equal(layer(x), layer(x.clone()))
    assert layer.num_bytes == 48 * 200 + 2 * 4 * 4 + 48 * 4
    assert not layer.takes_fp8


def test_separate_layers_stand_beside_each_other() -> None:
    x = normal(5, 96)
    layers = [linear(normal(8, 96)), ONE.linear(normal(16), torch.float32, OPERATIONS)]
    both = SeparateLinears(layers)
    assert torch.equal(both(x), torch.cat([layer(x) for layer in layers], 1))
    assert both.num_bytes == sum(layer.num_bytes for layer in layers)
    assert not both.takes_fp8


@pytest.mark.parametrize("biased", [False, True])
def test_layers_count_all_that_they_hold(biased: bool) -> None:
    bias = normal(16) if biased else None
    layer = ONE.linear(bias, torch.float32, OPERATIONS)
    assert isinstance(layer, GroupedLinear)
    assert layer.num_bytes == 16 * 128 // 2 + 4 * 16 * 4 + 96 * 4 + 64 * biased  # a span of 128 inputs
    int8 = Int8Weight(quantize_int8(normal(16, 96))).linear(bias, torch.float32, OPERATIONS)
    assert isinstance(int8, Int8Linear)
    assert int8.num_bytes == 16 * 96 + 16 * 4 + 64 * biased


def test_layers_take_activations_that_are_quantized_to_fp8() -> None:
    x = quantize_fp8(normal(5, 96))
    wide = x.values.float() * x.scales
    for weight in (ONE, Int8Weight(quantize_int8(normal(16, 96)))):
        layer = weight.linear(None, torch.float32, OPERATIONS)
        assert torch.equal(layer(x), layer(wide))


def test_int8_error_is_that_of_eight_bits() -> None:
    weight = normal(48, 256) * torch.logspace(-3, 1, 48)[:, None]
    x = normal(9, 256, seed=1) * torch.logspace(-2, 2, 9)[:, None]
    got = Int8Weight(quantize_int8(weight)).linear(None, torch.float32, OPERATIONS)(x)
    sizes = x.double().norm(dim=-1)[:, None] * weight.double().norm(dim=-1)
    errors = (got.double() - x.double() @ weight.double().T) / sizes
    assert 2e-4 < float(errors.square().mean().sqrt()) < 1e-3


def test_zero_points_in_the_middle_are_none() -> None:
    numbers, scales = torch.randint(0, 16, (16, 96)), torch.ones(3, 16)
    assert GroupedNumbers(numbers, scales, torch.full((3, 16), 8), 4, 32).packed().ints.symmetric
    assert not GroupedNumbers(numbers, scales, torch.full((3, 16), 7), 4, 32).packed().ints.symmetric


@pytest.mark.parametrize("groups", [torch.zeros(96), torch.arange(96) // 16, torch.arange(96) // 32 + 1])
def test_groups_of_other_sizes_are_refused(groups: Tensor) -> None:
    numbers = GroupedNumbers(torch.zeros(16, 96), torch.ones(3, 16), None, 4, 32, groups.int())
    for read in (numbers.packed, lambda: numbers.dense(torch.float32)):
        with pytest.raises(ValueError, match="not 32 inputs each"):
            read()
