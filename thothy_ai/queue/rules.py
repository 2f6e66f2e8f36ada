"""`Rules`: runs housekeeping rules when they are due. Each fails alone: it is logged, counted, and tried again later.

Only a lost connection ends the round: then the process no longer leads. Each rule has its own limits for its
statements' waits for locks and run times, so that a locked table blocks only the rules that need it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from thothy_ai.crash_points import crash_point
from thothy_ai.errors import ThothyError
from thothy_ai.queue.leader import Leader
from thothy_ai.queue.metrics import RULE_AGE, RULE_FAILURES

logger = logging.getLogger(__name__)

FIRST_PAUSE, MAX_PAUSE = 1.0, 600.0  # seconds until a rule that failed is tried again: doubled each time


@dataclass(frozen=True, slots=True)
class Rule:
    """`run` every `every` seconds, 0 for every round, with limits in seconds for each of its statements."""

    name: str
    every: float
    run: Callable[[], None]
    lock_seconds: float = 1.0
    statement_seconds: float = 30.0

    def pause(self, failures: int) -> float:
        """Seconds until the next try after `failures` in a row: doubling, up to a sixth of `every`, within bounds."""
        return min(FIRST_PAUSE * 2.0 ** min(failures - 1, 20), max(self.every / 6, FIRST_PAUSE), MAX_PAUSE)


@dataclass(slots=True)
class _Record:
    """When a rule is due, and when it last succeeded, in monotonic seconds; its failures since then."""

    due: float = float("-inf")
    succeeded: float = float("-inf")
    failures: int = 0


class Rules:
    """Owns when each rule ran. Used by the thread that leads."""

    def __init__(self, leader: Leader, rules: Sequence[Rule]) -> None:
        self._leader = leader
        self._records = {rule: _Record() for rule in rules}
        for rule, record in self._records.items():
            RULE_FAILURES.labels(rule.name)
            RULE_AGE.labels(rule.name).set_function(partial(self._age, record))

    def run_due(self) -> None:
        """Run the due rules. Raises the error of a rule that lost the connection."""
        for rule, record in self._records.items():
            if time.monotonic() >= record.due:
                try:
                    self._leader.limit(rule.lock_seconds, rule.statement_seconds)
                    rule.run()
                except Exception as error:
                    if self._leader.is_lost:
                        raise
                    record.failures += 1
                    pause = rule.pause(record.failures)
                    record.due = time.monotonic() + pause
                    RULE_FAILURES.labels(rule.name).inc()
                    is_bug = not isinstance(error, ThothyError)  # needs a traceback
                    again = "reaper: rule %s failed and is tried again in %g s: %s"
                    logger.warning(again, rule.name, pause, error, exc_info=is_bug)
                else:
                    record.failures, record.succeeded = 0, time.monotonic()
                    record.due = record.succeeded + rule.every
                crash_point("mid_reap")

    def _age(self, record: _Record) -> float:
        """Seconds since its last success or since this process began to lead; 0 while it does not lead."""
        led = self._leader.led_seconds
        return max(0.0, min(led, time.monotonic() - record.succeeded))
