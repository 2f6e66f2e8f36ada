"""A seed's plan: always the same, every kind of fault in it, evenly spread."""

from __future__ import annotations

from thothy_ai.chaos.plan import FaultKind, draw_plan


def test_a_seed_always_draws_the_same_plan() -> None:
    assert draw_plan(7, 40) == draw_plan(7, 40)
    assert [fault.kind for fault in draw_plan(7, 40)] != [fault.kind for fault in draw_plan(8, 40)]


def test_every_kind_comes_before_any_comes_again() -> None:
    plan = draw_plan(3, 2 * len(FaultKind))
    for half in (plan[: len(FaultKind)], plan[len(FaultKind) :]):
        assert {fault.kind for fault in half} == set(FaultKind)


def test_faults_are_spread_over_the_drain() -> None:
    shares = [fault.at for fault in draw_plan(1, 10)]
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.1
    assert 0.8 < shares[-1] < 1


def test_what_cannot_be_broken_here_is_left_out() -> None:
    plan = draw_plan(1, 60, without=[FaultKind.CLOCK_SKEWED])
    assert FaultKind.CLOCK_SKEWED not in {fault.kind for fault in plan}
    assert len(plan) == 60
