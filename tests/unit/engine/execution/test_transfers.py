"""What is sent arrives as it was, in the order in which kernels read it; pinned memory is tests/gpu's."""

from __future__ import annotations

import numpy as np
import torch

from thothy_ai.engine.execution.transfers import send, send_into

CPU = torch.device("cpu")


def test_columns_that_were_picked_lie_row_after_row() -> None:
    picked = np.arange(6, dtype=np.int32).reshape(2, 3)[:, [True, False, True]]
    assert not picked.flags.c_contiguous
    sent = send(picked, CPU)
    assert sent.is_contiguous()
    assert sent.tolist() == [[0, 2], [3, 5]]


def test_numbers_of_another_type_become_int32() -> None:
    assert send([1, 2**31 - 1], CPU).dtype == send(np.array([1, 2]), CPU).dtype == torch.int32


def test_the_front_of_a_buffer_is_overwritten() -> None:
    target = torch.full((4,), 7, dtype=torch.int32)
    assert send_into(np.array([1, 2], np.int32), target).tolist() == [1, 2]
    assert target.tolist() == [1, 2, 7, 7]
