"""How matmuls of integer weights are cut, by the GPU's size."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.support.integer_weights import Form, random_weight
from thothy_ai.kernels.grouped import GroupedInts
from thothy_ai.kernels.triton.grouped.tiles import GroupedTile, suited, tokens_first_tile
from thothy_ai.kernels.triton.sms import RESERVED, SMs

H200 = SMs(132, 228 << 10, 227 << 10)
A100 = SMs(108, 164 << 10, 163 << 10)
SMALLER = SMs(128, 100 << 10, 99 << 10)


@pytest.fixture(scope="module")
def weight() -> GroupedInts:
    return random_weight(Form(64, 256, 128), torch.device("cpu"))[0]


def test_two_warps_are_faster_for_few_rows_whose_factors_are_words() -> None:
    zeros = random_weight(Form(64, 256, 64, zeros=True), torch.device("cpu"))[0]
    assert suited(16, with_outputs(zeros, 4096), H200) == GroupedTile(64, 16, 8, 3, 2)
    assert suited(64, with_outputs(zeros, 4096), H200) == GroupedTile(64, 64, 6, 3, 4)


def test_factors_that_are_words_take_shared_memory_too() -> None:
    zeros = random_weight(Form(64, 256, 128, zeros=True), torch.device("cpu"))[0]
    tile = suited(128, zeros, H200)
    assert tile
    assert tile.stages == 2


def with_outputs(weight: GroupedInts, outputs: int) -> GroupedInts:
    return replace(weight, words=weight.words.new_empty(outputs, 32))


@pytest.mark.parametrize(
    ("rows", "outputs", "tile"),
    [
        (17, 6144, GroupedTile(64, 32, 4, 3)),
        (32, 4096, GroupedTile(64, 32, 6, 3)),
        (40, 4096, GroupedTile(64, 64, 6, 3)),
        (65, 4096, GroupedTile(128, 128, 4, 3, 8)),
        (256, 4096, GroupedTile(128, 128, 1, 3, 8)),
        (257, 4096, None),
    ],
)
def test_an_h200_has_the_tiles_that_it_ran_fastest(
    rows: int, outputs: int, tile: GroupedTile | None, weight: GroupedInts
) -> None:
    assert suited(rows, with_outputs(weight, outputs), H200) == tile


@pytest.mark.parametrize(
    ("rows", "outputs", "tile"),
    [
        (1, 6144, GroupedTile(64, 16, 4, 3)),
        (16, 4096, GroupedTile(64, 16, 6, 3)),
        (16, 28672, GroupedTile(64, 16, 1, 3)),
    ],
)
def test_groups_of_64_have_weights_first(rows: int, outputs: int, tile: GroupedTile, weight: GroupedInts) -> None:
    assert suited(rows, with_outputs(replace(weight, group=64), outputs), H200) == tile


def of_32(**form: bool) -> GroupedInts:
    return random_weight(Form(64, 256, 32, **form), torch.device("cpu"))[0]


NARROW = GroupedTile(64, 16, 1, 3, 2, 128, tokens_first=True)
WIDE = GroupedTile(256, 16, 1, 3, 4, None, tokens_first=True)
OF_32_TOKENS = GroupedTile(128, 32, 1, 3, 4, None, tokens_first=True)


@pytest.mark.parametrize("kind", [{}, {"zeros": True}, {"offsets": True}])
@pytest.mark.parametrize(
    ("rows", "outputs", "tile"),
    [
        (1, 6144, NARROW._replace(split=6)),
        (16, 4096, NARROW._replace(split=8)),
        (16, 28672, WIDE._replace(split=2)),
        (16, 57344, WIDE),
        (16, 37888, NARROW),  # wide tiles would leave SMs idle
        (16, 128256, NARROW),
        (17, 6144, OF_32_TOKENS._replace(split=6)),
        (32, 28672, OF_32_TOKENS),
        (33, 4096, GroupedTile(64, 64, 6, 3)),
    ],
)
def test_groups_of_32_have_tokens_first_up_to_32_rows(
    rows: int, outputs: int, tile: GroupedTile, kind: dict[str, bool]
) -> None:
    assert suited(rows, with_outputs(of_32(**kind), outputs), H200) == tile


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(
    ("rows", "outputs", "tile"),
    [
        (1, 6144, NARROW._replace(split=6)),
        (16, 28672, WIDE._replace(split=2)),
        (17, 6144, GroupedTile(64, 32, 4, 3)),
    ],
)
def test_groups_of_128_have_tokens_first_up_to_16_rows(
    rows: int, outputs: int, tile: GroupedTile, *, zeros: bool
) -> None:
    weight = random_weight(Form(64, 256, 128, zeros=zeros), torch.device("cpu"))[0]
    assert suited(rows, with_outputs(weight, outputs), H200) == tile


@pytest.mark.parametrize("form", [Form(64, 256, 64), Form(64, 256, 64, zeros=True), Form(64, 256, 32, 8)])
def test_other_groups_and_8_bits_have_weights_first(form: Form) -> None:
    tile = suited(16, random_weight(form, torch.device("cpu"))[0], H200)
    assert tile
    assert not tile.tokens_first


@pytest.mark.parametrize("form", [Form(64, 256, 32, zeros=True), Form(64, 256, 128, zeros=True)])
@pytest.mark.parametrize("outputs", [4096, 28672])
@pytest.mark.parametrize("tokens", [16, 32])
def test_tokens_first_fit_the_shared_memory_of_smaller_gpus(tokens: int, outputs: int, form: Form) -> None:
    """A span that is multiplied is in registers, others are loaded ahead; tiles are larger on a large GPU."""
    weight = random_weight(form, torch.device("cpu"))[0]
    tile = tokens_first_tile(tokens, outputs, H200)
    words, factors = weight.lanes * 4, weight.span // weight.group * 4
    of_span = tile.outputs * (words + factors) + tokens * weight.span * 2
    assert (tile.stages - 1) * of_span <= SMALLER.shared_of_program - RESERVED


@pytest.mark.parametrize(("sms", "stages"), [(H200, [3, 3, 3]), (A100, [3, 3, 2]), (SMALLER, [3, 2, None])])
def test_with_less_shared_memory_less_is_loaded_ahead(sms: SMs, stages: list[int | None], weight: GroupedInts) -> None:
    tiles = [suited(rows, weight, sms) for rows in (16, 64, 128)]
    assert [None if tile is None else tile.stages for tile in tiles] == stages
