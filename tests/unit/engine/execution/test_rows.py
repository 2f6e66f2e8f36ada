"""What the host sends of a step: facts by column, padded with nobody's row, and only what the device lacks."""

from __future__ import annotations

import torch

from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.core_api import CoreRequest
from thothy_ai.engine.execution.rows import Rows
from thothy_ai.engine.scheduling.prefix_groups import Group
from thothy_ai.engine.scheduling.scheduler import Scheduled, StepPlan
from thothy_ai.engine.scheduling.sequence import Sequence
from thothy_ai.kernels.reference.operations import ReferenceOperations

MAX_ROWS, MAX_LENGTH, BLOCK = 6, 16, 4


def rows() -> Rows:
    return Rows(MAX_ROWS, MAX_LENGTH, BLOCK, ReferenceOperations(), torch.device("cpu"))


def member(row: int, start: int, count: int = 1) -> Scheduled:
    sequence = Sequence(CoreRequest(str(row), (7, 8, 9), SamplingParams()), max_tokens=8)
    sequence.row, sequence.blocks = row, [10 + row]
    return Scheduled(sequence, row, start, count, samples=True)


def test_a_step_is_described_and_padded() -> None:
    made = rows()
    plan = StepPlan((member(4, 5), member(2, 6), member(1, 3)), (), (Group(first=1, size=2, shared=8),))
    made.describe(plan, 5)
    _, batch = made.step(5, 5, None)
    nobody = MAX_ROWS
    assert batch.rows.tolist() == [4, 2, 1, nobody, nobody]
    assert batch.context_lens.tolist() == [6, 7, 4, 1, 1]
    assert batch.query_starts.tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.shared_lens.tolist() == [0, 8, 8, 0, 0]
    assert batch.group_sizes.tolist() == [0, 2, 0, 0, 0]


def test_only_what_the_device_lacks_is_sent() -> None:
    made, first = rows(), member(3, 0, 3)
    made.update(StepPlan((first,), (first.sequence,)))
    assert made.token_ids[3, :4].tolist() == [7, 8, 9, 0]
    assert made.block_tables[3, :2].tolist() == [13, 0]
    made.token_ids[3, 0] = made.block_tables[3, 0] = -1  # would be sent again by mistake
    first.sequence.tokens += [5, 6]
    first.sequence.blocks += [20]
    made.update(StepPlan((member(0, 0), first), ()))
    assert made.token_ids[3, :5].tolist() == [-1, 8, 9, 5, 6]
    assert made.block_tables[3, :2].tolist() == [-1, 20]
    made.update(StepPlan((first,), (first.sequence,)))  # admitted again: nothing is there any more
    assert made.token_ids[3, 0].item() == 7
