"""A step's seconds, divided over its members."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from thothy_ai.engine.api.step import Groups, Step, StepResult
from thothy_ai.engine.core.accounting import StepCost, divide
from thothy_ai.engine.core.counters import Counters
from thothy_ai.engine.scheduling.step_builder import ScheduledStep

COST = StepCost(token=1.0, sample=2.0, attended=0.5, read=0.25)
DECODE, PREFILL = (11, 1, True), (0, 3, False)  # (start, count, samples)


def step(*members: tuple[int, int, bool], groups: tuple[tuple[int, int, int], ...] = ()) -> Step:
    starts, counts, samples = zip(*members, strict=True)
    columns = np.array(groups, np.int32).reshape(-1, 3).T
    rows = np.arange(len(members), dtype=np.int32)
    return Step(rows, np.array(starts, np.int32), np.array(counts, np.int32), np.array(samples), Groups(*columns))


def member(*, booked: bool = False) -> Any:
    """As much of a sequence as a step's counters look at."""
    return SimpleNamespace(request=SimpleNamespace(booked=booked))


def test_shares_are_by_weight_and_add_up() -> None:
    shares = divide(60.0, COST.weigh(step(DECODE, PREFILL)), np.array([False, True]))
    weights = [1 + 2 + 12 * 0.5 + 12 * 0.25, 3 + 6 * 0.5 + 3 * 0.25]  # a token, a sample, pairs, KV read
    assert shares.members == pytest.approx([60 * weight / sum(weights) for weight in weights])
    assert (shares.decode, shares.prefill) == pytest.approx(tuple(shares.members))


def test_what_a_group_reads_once_is_charged_in_equal_parts() -> None:
    members = [(8, 1, True)] * 3
    alone = COST.weigh(step(*members))
    together = COST.weigh(step(*members, groups=((1, 2, 8),)))
    assert (alone - together).tolist() == [0.0, 4 * COST.read, 4 * COST.read]


@pytest.mark.parametrize("window", [1, 4, 9, 100])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_layer_costs_what_its_window_lets_through(window: int, *, chunked: bool) -> None:
    """Of four layers three have a window; two of the members share ten tokens."""
    members = ((11, 1, True), (14, 1, True), (20, 1, False), (0, 3, False), (6, 7, False))
    cost = StepCost(
        token=0.0, sample=0.0, attended=1.0, read=100.0, windows=((None, 0.25), (window, 0.75)), chunked=chunked
    )

    def sees(query: int, key: int, width: float) -> bool:
        return key // width == query // width if chunked else key > query - width

    def expected(width: float, place: int) -> float:
        start, count, _ = members[place]
        queries = range(start, start + count)
        seen = [{key for key in range(query + 1) if sees(query, key, width)} for query in queries]
        shared = {key for key in set.union(*seen) if key < 10 and place < 2}
        return sum(map(len, seen)) + 100.0 * (len(set.union(*seen)) - len(shared) / 2)

    wanted = [0.25 * expected(float("inf"), place) + 0.75 * expected(window, place) for place in range(len(members))]
    assert cost.weigh(step(*members, groups=((0, 2, 10),))).tolist() == pytest.approx(wanted)


def test_tokens_are_counted_by_phase() -> None:
    scheduled = ScheduledStep(step(DECODE, PREFILL), (member(booked=True), member()), np.array([False, True]), ())
    counters = Counters()
    shares = divide(1.0, COST.weigh(scheduled.step), scheduled.prefill)
    counters.count_step(scheduled, StepResult([], 1.0), shares)
    stats = counters.stats
    assert stats.direct_seconds == pytest.approx(shares.members[1])  # of the member that no worker books
    assert (stats.prefill_tokens, stats.decode_tokens, stats.batch_size) == (3, 1, 2)
    assert stats.prefill_seconds + stats.decode_seconds == pytest.approx(stats.busy_seconds)


def test_a_sequence_with_several_members_counts_once() -> None:
    one = step(DECODE, DECODE)
    one = replace(one, rows=np.zeros_like(one.rows))
    scheduled = ScheduledStep(one, (member(), member()), np.array([False, False]), ())
    counters = Counters()
    counters.count_step(scheduled, StepResult([], 1.0), divide(1.0, COST.weigh(one), scheduled.prefill))
    assert (counters.stats.decode_tokens, counters.stats.batch_size) == (2, 1)


def test_what_the_host_waited_and_replayed_counts_once_a_step_is_read() -> None:
    scheduled = ScheduledStep(step(DECODE), (member(),), np.array([False]), ())
    counters = Counters()
    with counters.waiting():
        pass
    assert counters.stats.wait_seconds == 0
    for replayed in (True, False):
        result = StepResult([], 1.0, replayed)
        counters.count_step(scheduled, result, divide(1.0, COST.weigh(scheduled.step), scheduled.prefill))
    assert 0 < counters.stats.wait_seconds < 1
    assert (counters.stats.steps, counters.stats.replayed_steps) == (2, 1)
