"""Admission: what is reserved for, and what teaches it."""

from __future__ import annotations

from thothy_ai.engine.api import FinishReason, SamplingParams
from thothy_ai.engine.config import EngineConfig
from thothy_ai.engine.core_api import CoreRequest
from thothy_ai.engine.scheduling.scheduler import Scheduler
from thothy_ai.engine.scheduling.sequence import Sequence

CONFIG = EngineConfig(block_size=2, num_blocks=31, max_rows=9, token_budget=64, max_context=60)


def sequence(name: str) -> Sequence:
    sampling = SamplingParams(max_tokens=40)
    return Sequence(CoreRequest(name, (1, 2), sampling, profile="report"), max_tokens=sampling.max_tokens)


def retired(scheduler: Scheduler, reason: FinishReason) -> None:
    done = sequence("done")
    scheduler.add(done)
    done.finish(reason)
    scheduler.retire(done)


def admitted(scheduler: Scheduler) -> int:
    for name in "abcdefgh":
        scheduler.add(sequence(name))
    plan = scheduler.schedule()
    assert plan is not None
    return len(plan.admitted)


def test_before_anything_is_learnt_half_of_max_tokens_is_reserved() -> None:
    assert admitted(Scheduler(CONFIG)) == 2  # 2 + 20 tokens each, of 60


def test_admission_learns_from_what_finished() -> None:
    scheduler = Scheduler(CONFIG)
    for _ in range(40):
        retired(scheduler, FinishReason.STOP)  # without a single token of output
    assert admitted(scheduler) == 8


def test_what_was_aborted_teaches_admission_nothing() -> None:
    scheduler = Scheduler(CONFIG)
    for _ in range(40):
        retired(scheduler, FinishReason.ABORTED)
    assert admitted(scheduler) == 2
