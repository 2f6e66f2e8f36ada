"""Packing of integer weights with groups."""

from __future__ import annotations

import pytest
import torch

from tests.support.integer_weights import FORMS, random_weight
from tests.support.layer_checks import TOLERANCES, TYPES, normal
from thothy_ai.kernels.grouped import GroupedInts, suited_lanes
from thothy_ai.kernels.reference.grouped import GroupedMatmul, dequantized, packed, unpacked

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", FORMS)
def test_a_packed_weight_stands_for_what_was_packed(name: str) -> None:
    weight, wanted = random_weight(FORMS[name], CPU)
    assert torch.equal(dequantized(weight), wanted.float())
    assert int(unpacked(weight).max()) == (1 << FORMS[name].bits) - 1


def test_neighbouring_inputs_are_in_the_halves_of_neighbouring_words() -> None:
    numbers = torch.zeros(1, 512, dtype=torch.uint8)
    numbers[0, 256 + 3 * 64 : 256 + 4 * 64 : 2] = 7
    weight = packed(numbers, torch.ones(4, 1), None, 4, 128)
    assert weight.lanes == 32
    assert weight.words[0, :32].tolist() == [0] * 32
    assert weight.words[0, 32:].tolist() == [7 << 12] * 32


@pytest.mark.parametrize(
    ("inputs", "bits", "group", "lanes"),
    [(4096, 4, 128, 32), (4096, 4, 32, 16), (4096, 4, 64, 32), (4096, 8, 128, 32), (576, 4, 128, 16)],
)
def test_spans_fit_groups_and_waste_little(inputs: int, bits: int, group: int, lanes: int) -> None:
    assert suited_lanes(inputs, bits, group) == lanes


@pytest.mark.parametrize("bits", [4, 8])
def test_bytes_are_a_number_s_bits_and_a_scale_for_each_group(bits: int) -> None:
    weight: GroupedInts = random_weight(FORMS["groups of 128"]._replace(bits=bits, zeros=True), CPU)[0]
    assert weight.num_bytes == 64 * 512 * bits // 8 + 64 * 4 * 4


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("biased", [False, True])
def test_matmul(dtype: torch.dtype, biased: bool) -> None:
    weight, wanted = random_weight(FORMS["groups of 32 with zeros"], CPU)
    x, bias = normal(5, 320).to(dtype), normal(96, seed=1).to(dtype) if biased else None
    got = GroupedMatmul(weight, bias)(x)
    assert got.dtype == dtype
    exact = x.double() @ wanted.T + (0 if bias is None else bias.double())
    torch.testing.assert_close(got.double() / 10, exact / 10, **TOLERANCES[dtype])
