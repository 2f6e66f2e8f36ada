"""The table of masks; tests/gpu has the same on a GPU."""

from __future__ import annotations

from tests.support.masks import check_table
from thothy_ai.engine.execution.mask_table import MaskTable


def test_members_get_the_masks_that_were_last_written_to_their_places() -> None:
    check_table("cpu")


def test_its_memory_is_that_of_all_places_of_those_of_a_step_and_of_two_new_ones_per_row() -> None:
    assert MaskTable.num_bytes(300, 131_072) == 16_384 * (1 + 8_192 + 300 + 300 + 2 * 300)
