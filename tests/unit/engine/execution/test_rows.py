"""What the host sends of a step: its columns, padded with the padding row, and only what the device lacks."""

from __future__ import annotations

import numpy as np
import torch

from thothy_ai.engine.api.step import NO_UPDATES, Groups, RowUpdates, Step
from thothy_ai.engine.execution.rows import Rows
from thothy_ai.kernels.reference.operations import ReferenceOperations

MAX_ROWS, MAX_LENGTH, BLOCK = 6, 16, 4


def rows(tables: int = 1) -> Rows:
    return Rows(MAX_ROWS, MAX_ROWS, MAX_LENGTH, BLOCK, tables, ReferenceOperations(), torch.device("cpu"))


def columns(*values: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return tuple(np.array(column, np.int32) for column in zip(*values, strict=True))


def updates(*runs: tuple[int, int, list[int]]) -> RowUpdates:
    """(row, first place, values)."""
    values = [value for _, _, run in runs for value in run]
    return RowUpdates(*columns(*((row, first, len(run)) for row, first, run in runs)), np.array(values, np.int32))


def step(
    *members: tuple[int, int, int],
    groups: tuple[tuple[int, int, int], ...] = (),
    tokens: RowUpdates = NO_UPDATES,
    blocks: RowUpdates = NO_UPDATES,
) -> Step:
    """Members as (row, start, count)."""
    every = np.ones(len(members), np.bool_)
    grouped = Groups(*np.array(groups, np.int32).reshape(-1, 3).T)
    return Step(*columns(*members), every, grouped, new_tokens=tokens, new_blocks=blocks)


def test_metadata_is_sent_and_padded() -> None:
    made = rows()
    decode = step((4, 5, 1), (2, 6, 1), (1, 3, 1), groups=((1, 2, 8),))
    decode.samples[1] = False
    made.send(decode.padded_to(5, made.padding))
    _, batch, sampling = made.decode_inputs(5)
    assert batch.rows.tolist() == [4, 2, 1, MAX_ROWS, MAX_ROWS]
    assert batch.context_lens.tolist() == [6, 7, 4, 1, 1]
    assert batch.query_starts.tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.shared_lens.tolist() == [0, 8, 8, 0, 0]
    assert batch.group_sizes.tolist() == [0, 2, 0, 0, 0]
    assert sampling.tolist() == [4, MAX_ROWS, 1, MAX_ROWS, MAX_ROWS]


def test_a_step_is_applied_at_once() -> None:
    made = rows()
    mixed = step(
        *((4, 5, 1), (2, 0, 3)),
        tokens=updates((4, 4, [8, 9]), (2, 0, [5, 6, 7])),
        blocks=updates((4, 0, [3, 1]), (2, 0, [2])),
    )
    tokens, batch, _ = made.apply(mixed)
    assert tokens.ids.tolist() == [9, 5, 6, 7]
    assert tokens.positions.tolist() == [5, 0, 1, 2]
    assert tokens.slots[0].tolist() == [1 * BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1, 2 * BLOCK + 2]
    assert (batch.num_decode, batch.query_lens, batch.kv_lens) == (1, (1, 3), (6, 3))
    assert batch.query_starts.tolist() == [0, 1, 4]


def test_a_row_has_a_table_for_each_group_of_layers() -> None:
    made = rows(tables=2)
    blocks = updates((2 * 4, 0, [3, 1]), (2 * 4 + 1, 0, [5, 6]), (2 * 1 + 1, 0, [7]))
    tokens, batch, _ = made.apply(step((4, 5, 1), (1, 0, 2), blocks=blocks))
    assert [table[4, :2].tolist() for table in batch.block_tables] == [[3, 1], [5, 6]]
    assert [slots.tolist() for slots in tokens.slots] == [[BLOCK + 1, 0, 1], [6 * BLOCK + 1, 7 * BLOCK, 7 * BLOCK + 1]]


def test_only_what_the_device_lacks_is_written() -> None:
    made = rows()
    made.send(step((3, 0, 3), tokens=updates((3, 0, [7, 8, 9])), blocks=updates((3, 0, [13]))))
    assert made.token_ids[3, :4].tolist() == [7, 8, 9, 0]
    assert made.block_tables[0][3, :2].tolist() == [13, 0]
    made.token_ids[3, 0] = made.block_tables[0][3, 0] = -1  # would be overwritten by mistake
    made.send(step((0, 0, 1), (3, 3, 1), tokens=updates((3, 3, [5, 6])), blocks=updates((3, 1, [20]))))
    assert made.token_ids[3, :5].tolist() == [-1, 8, 9, 5, 6]
    assert made.block_tables[0][3, :2].tolist() == [-1, 20]
    made.send(step((3, 5, 1)))
    assert made.token_ids[3, :6].tolist() == [-1, 8, 9, 5, 6, 0]


def test_a_sampled_token_is_written_and_no_token_is_not() -> None:
    made = rows()
    made.write_sampled(torch.tensor([1, 2]), torch.tensor([4, 5]), torch.tensor([9, -1]))
    assert (made.token_ids[1, 4].item(), made.token_ids[2, 5].item()) == (9, 0)
