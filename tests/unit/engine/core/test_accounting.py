"""A step's seconds, divided over its members."""

from __future__ import annotations

import pytest

from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.core.accounting import StepCost, divide
from thothy_ai.engine.core.counters import Counters
from thothy_ai.engine.core_api import CoreRequest
from thothy_ai.engine.scheduling.prefix_groups import Group
from thothy_ai.engine.scheduling.scheduler import Scheduled, StepPlan
from thothy_ai.engine.scheduling.sequence import Sequence

COST = StepCost(token=1.0, sample=2.0, attended=0.5, read=0.25)


def member(row: int, prompt: int, start: int, count: int, *, samples: bool = True) -> Scheduled:
    sequence = Sequence(CoreRequest(str(row), (1,) * prompt, SamplingParams()), max_tokens=8)
    return Scheduled(sequence, row, start, count, samples)


def test_shares_are_by_weight_and_add_up() -> None:
    decode, prefill = member(0, 10, 11, 1), member(1, 4, 0, 3, samples=False)
    shares = divide(60.0, StepPlan((decode, prefill), ()), COST)
    weights = [1 + 2 + 12 * 0.5 + 12 * 0.25, 3 + 6 * 0.5 + 3 * 0.25]  # a token, a sample, pairs, KV read
    assert shares.members == pytest.approx([60 * weight / sum(weights) for weight in weights])
    assert (shares.decode, shares.prefill) == pytest.approx(tuple(shares.members))


def test_what_a_group_reads_once_is_paid_in_equal_parts() -> None:
    members = tuple(member(row, 8, 8, 1) for row in range(3))
    alone = COST.weigh(StepPlan(members, ()))
    together = COST.weigh(StepPlan(members, (), (Group(first=1, size=2, shared=8),)))
    assert (alone - together).tolist() == [0.0, 4 * COST.read, 4 * COST.read]


def test_tokens_are_counted_by_phase() -> None:
    plan = StepPlan((member(0, 10, 11, 1), member(1, 4, 0, 3)), ())
    counters = Counters()
    counters.count_step(plan, 1.0, divide(1.0, plan, COST))
    assert (counters.prefill_tokens, counters.decode_tokens, counters.batch_size) == (3, 1, 2)
    assert counters.prefill_seconds + counters.decode_seconds == pytest.approx(counters.busy_seconds)
