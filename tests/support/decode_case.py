"""Decode attention over a case, as the kernels compute it, compared with the textbook formula."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.support.attention_case import TOLERANCES, Case, Group, over_nan, shape_of, textbook
from thothy_ai.kernels.paged import PLAIN, AttentionParams
from thothy_ai.kernels.triton.attention.decode_attention import DecodeAttention
from thothy_ai.kernels.triton.attention.decode_tuning import DecodeTuning

TUNING = DecodeTuning(tile=16, ahead=1, warps=4, programs=8, group_rows=4)
GROUPS = [Group(first=1, size=4, blocks=3), Group(first=6, size=2, blocks=1)]
IN_GROUPS = [(1, 20), (1, 49), (1, 64), (1, 50), (1, 80), (1, 1), (1, 17), (1, 100)]  # those of GROUPS, pages of 16


def attend(
    case: Case,
    tuning: DecodeTuning | None = TUNING,
    params: AttentionParams = PLAIN,
    sinks: Tensor | None = None,
) -> Tensor:
    """What the kernels make of the case, over a poisoned result."""
    return over_nan(DecodeAttention(shape_of(case), tuning), case, params, sinks)


def check(
    case: Case,
    device: torch.device,
    tuning: DecodeTuning | None = TUNING,
    params: AttentionParams = PLAIN,
    sinks: Tensor | None = None,
) -> None:
    """The decode sequences are right, and the rows of prefills untouched."""
    out = attend(case.on(device), tuning, params, sinks if sinks is None else sinks.to(device)).cpu()
    decodes = case.batch.num_decode
    atol, rtol = TOLERANCES[case.q.dtype]
    expected = textbook(case, params, sinks)
    torch.testing.assert_close(out[:decodes].double(), expected[:decodes], atol=atol, rtol=rtol)
    assert out[decodes:].isnan().all()
